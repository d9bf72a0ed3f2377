"""A piece of the input made into clean documents: a pure function, the same on any thread and any machine."""

from dataclasses import dataclass

import numpy as np
import polars as pl
import xxhash

from tokenmill.documents.cleaning import cleaned
from tokenmill.documents.dataset import SCHEMA
from tokenmill.documents.duplicates import Hashes
from tokenmill.documents.filters import verdicts
from tokenmill.documents.filters.boilerplate import without_boilerplate
from tokenmill.documents.filters.masking import masked
from tokenmill.documents.near_duplicates import signatures
from tokenmill.documents.params import CleanParams
from tokenmill.documents.pieces import Piece
from tokenmill.documents.report import Tally


@dataclass(frozen=True)
class CleanBatch:
    """The documents of a piece that pass by themselves, and the counts of what does not."""

    documents: pl.DataFrame
    """With the columns of SCHEMA."""
    tally: Tally
    signatures: Hashes | None
    """What near-duplicates are known by, a row a document; None where nobody asks."""
    size: int
    """Bytes on disk that were read for it."""


def clean_piece(piece: Piece, params: CleanParams) -> CleanBatch:
    """Read a piece, clean its texts, and drop those that do not pass.

    Raises:
        UserError: a file cannot be read or holds no text in a known shape.
    """
    tally = Tally()
    raw, sources = piece.read(params, tally)
    tally.add_read(raw, sources)
    text = _as_wished(raw, params)
    reasons = _reasons(text, params)
    if reasons.null_count() < len(reasons):
        tally.drop_all(reasons, text.zip_with(text != "", raw))  # of what became empty, what it was
    del raw
    passed = reasons.is_null()
    # By way of Python's bytes, which the hash needs: the new column also lets go of the texts before cleaning.
    data = text.filter(passed).cast(pl.Binary).to_list()
    del text
    ids = np.fromiter(map(xxhash.xxh3_64_intdigest, data), dtype=np.uint64, count=len(data))
    columns = {
        "text": pl.Series(data, dtype=pl.Binary).cast(pl.String),
        "source": sources.filter(passed),
        "id": pl.Series(ids),
    }
    near = params.near_duplicates
    return CleanBatch(
        documents=pl.DataFrame(columns, schema=SCHEMA),
        signatures=signatures(columns["text"], near) if near.enabled else None,
        tally=tally,
        size=piece.size,
    )


def _as_wished(raw: pl.Series, params: CleanParams) -> pl.Series:
    """The texts cleaned, without boilerplate and masked."""
    text = cleaned(raw, params.mode)
    if params.drop_boilerplate:
        text = without_boilerplate(text)
    return masked(text, params.mask)


def _reasons(text: pl.Series, params: CleanParams) -> pl.Series:
    """Why a text does not pass by itself; null where it does."""
    chars = pl.col("chars")
    length = pl.when(chars == 0).then(pl.lit("empty")).when(chars < params.min_chars).then(pl.lit("too_short"))
    if params.max_chars is not None:
        length = length.when(chars > params.max_chars).then(pl.lit("too_long"))
    columns = {"chars": text.str.len_chars(), "quality": verdicts.reasons(text, params.filters)}
    return pl.DataFrame(columns).select(pl.coalesce(length, "quality").alias("reason")).to_series()
