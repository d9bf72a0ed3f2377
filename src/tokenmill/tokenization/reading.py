"""The clean corpus as tokenizing reads it: batches of whole documents, and a very long document piece by piece.

A document of 200 MB is one cell of a table, and an expression of polars on a table of one row copies it several
times. So it is taken out of the table once, as bytes, and cut where the tokenizer cuts anyway.
"""

import codecs
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from tokenmill.documents import dataset
from tokenmill.tokenization.segments import cut_stream

LONG_BYTES = 32 << 20
"""UTF-8 bytes from which on a document is read in pieces."""
PIECE_CHARS = 8 << 20
"""Characters after which the next edge is looked for."""


def batches(clean: Path, columns: Sequence[str] = ("text",)) -> Iterator[pl.DataFrame]:
    """The documents of a folder, in order, with `columns` and `ends`: whether a document ends with the row's text.

    The rows of one document join to its text, and encoded one by one they have its ids.
    """
    for frame in dataset.batches(clean, columns):
        yield from (_whole(frame),) if frame.estimated_size() < LONG_BYTES else _pieces(frame)


def _whole(documents: pl.DataFrame) -> pl.DataFrame:
    return documents.with_columns(pl.lit(True).alias("ends"))


def _pieces(documents: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Documents over LONG_BYTES in pieces, each in a batch of its own; what lies between them as it is."""
    start = 0
    for row in _long_rows(documents["text"]):
        if start < row:
            yield _whole(documents[start:row])
        others = [column[row : row + 1] for column in documents if column.name != "text"]
        yield from _rows(documents["text"].cast(pl.Binary)[row], others)
        start = row + 1
    if start < len(documents):
        yield _whole(documents[start:])


def _long_rows(texts: pl.Series) -> list[int]:
    """Which texts are long. One alone is what makes its batch so large, and is not measured: that would copy it."""
    if len(texts) == 1:
        return [0]
    return np.flatnonzero(texts.str.len_bytes().to_numpy() >= LONG_BYTES).tolist()


def _rows(text: bytes, others: Sequence[pl.Series]) -> Iterator[pl.DataFrame]:
    """One row for each piece of `text`, beside the other columns of its document."""
    left = len(text)
    for piece in cut_stream(_decoded(text), PIECE_CHARS):
        left -= len(piece.encode())
        yield pl.DataFrame([pl.Series("text", [piece]), *others, pl.Series("ends", [left == 0])])


def _decoded(text: bytes) -> Iterable[str]:
    blocks = (text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS))
    return codecs.iterdecode(blocks, "utf-8")
