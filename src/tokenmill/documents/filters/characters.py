"""How much of a document is digits and symbols (as the filters of ROOTS ask, Laurençon et al. 2022, appendix)."""

import polars as pl

from tokenmill.documents.filters.first import first
from tokenmill.documents.params import FilterParams

_DIGIT = r"\p{Decimal_Number}"
_SYMBOL = r"[^\p{L}\p{M}\p{N}\s]"


def too_many(frame: pl.DataFrame, params: FilterParams) -> pl.Series:
    """`digits` or `symbols`, where these are a larger part of the text's characters than allowed; else null."""
    texts = frame["text"]
    chars = texts.str.len_chars()
    kinds = {"digits": (_DIGIT, params.max_digit_fraction), "symbols": (_SYMBOL, params.max_symbol_fraction)}
    rules = {
        reason: texts.str.count_matches(pattern) / chars > limit
        for reason, (pattern, limit) in kinds.items()
        if limit is not None
    }
    return first({reason: broken & (chars > 0) for reason, broken in rules.items()}, len(frame))
