"""Of several rules that a document may break, the first."""

import polars as pl


def first(rules: dict[str, pl.Series], rows: int) -> pl.Series:
    """The name of the first rule whose column (bool) is true, for each of the rows; null where none is."""
    if not rules:
        return pl.repeat(None, rows, dtype=pl.String, eager=True)
    broken = pl.DataFrame(rules)
    return broken.select(pl.coalesce(pl.when(pl.col(name)).then(pl.lit(name)) for name in rules)).to_series()
