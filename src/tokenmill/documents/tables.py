"""Parquet files as streams of rows, in bounded memory."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from tokenmill.documents import shapes
from tokenmill.documents.sources import Source, blocks
from tokenmill.errors import UserError

ROWS = 1024
"""Rows taken out of the file at a time."""


def parquet_rows(source: Source, columns: list[str] | None, advance: Callable[[int], None]) -> Iterator[dict[str, Any]]:
    """The rows of a parquet file with the columns that matter.

    A compressed file is unpacked to a temporary file first: parquet is read from its end.

    Raises:
        UserError: the file is broken, or lacks the columns.
    """
    if source.compression is None:
        yield from _rows(source.path, source, columns)
        advance(source.size)
        return
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder, "unpacked.parquet")
        with unpacked.open("wb") as file:
            for block in blocks(source, advance):
                file.write(block)
        yield from _rows(unpacked, source, columns)


def _rows(path: Path, source: Source, columns: list[str] | None) -> Iterator[dict[str, Any]]:
    try:
        table = pl.scan_parquet(path, glob=False)
        names = table.collect_schema().names()
        wanted = [name for name in names if name in (shapes.KEYS if columns is None else columns)]
        if not wanted:
            raise UserError(no_text(source.path, names, columns))
        for batch in table.select(wanted).collect_batches(chunk_size=ROWS, maintain_order=True):
            yield from batch.iter_rows(named=True)
    except PermissionError:
        raise UserError(f"{source.path} may not be read (permission denied); chmod +r it or move it away.") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = " ".join(str(error).split())[:160]
        raise UserError(f"{source.path} is not a readable parquet file ({reason}); get it again.") from None


def no_text(path: Path, keys: list[str], columns: list[str] | None) -> str:
    """The sentence for a file in which the text is not found."""
    there = ", ".join(keys) or "no keys"
    if columns is None:
        return f"{path} has no text in a known shape (it has: {there}); set clean.columns to those that hold the text."
    return f"{path} lacks clean.columns ({', '.join(columns)}); it has: {there}."
