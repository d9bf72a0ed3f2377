"""A piece of the input made into clean documents: a pure function, the same on any thread and any machine.

The stage's work: pieces of the input are cleaned side by side, and taken up in their order, in constant memory.

Reading and cleaning a piece is a pure function, mapped by an engine over threads or machines. What needs to know of the
documents before (duplicates, counts, shards) happens here, one piece after the other.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from tokenmill.core.errors import UserError
from tokenmill.core.executor import Engine
from tokenmill.core.files import enough_room, write_directory
from tokenmill.core.shards import SCHEMA, Writer
from tokenmill.data import filters
from tokenmill.data.chunks import Piece, Planner
from tokenmill.data.dedup import Hashes, SeenHashes
from tokenmill.data.filters import without_boilerplate
from tokenmill.data.near_dedup import SeenNearDuplicates, signatures
from tokenmill.data.normalize import cleaned
from tokenmill.data.params import CleanParams
from tokenmill.data.pii import masked
from tokenmill.data.report import CleanReport, Tally
from tokenmill.data.sources import find
from tokenmill.display.progress import Progress


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
    columns = {"chars": text.str.len_chars(), "quality": filters.reasons(text, params.filters)}
    return pl.DataFrame(columns).select(pl.coalesce(length, "quality").alias("reason")).to_series()


def clean(*, raw: Path, out: Path, params: CleanParams, engine: Engine) -> CleanReport:
    """Clean what is at `raw` into the folder `out`, which appears whole or not at all.

    Raises:
        UserError: nothing can be read, a file is broken, or no document is kept.
    """
    if raw.resolve() in [out.resolve(), *out.resolve().parents]:
        raise UserError(f"data.raw ({raw}) holds {out}, which this stage writes; set data.raw to the raw text alone.")
    found = find(raw)
    tally = Tally()
    seen = Seen(params)
    total = sum(source.size for source in found.sources)
    with (
        enough_room(out, lambda: _size(total, tally)),
        write_directory(out) as folder,
        Progress("clean", total) as progress,
    ):
        pieces = Planner(params, progress.advance).pieces(found.sources)
        with Writer(folder) as writer:
            for batch in engine.map(functools.partial(clean_piece, params=params), pieces):
                progress.advance(batch.size)
                tally.merge(batch.tally)
                kept = seen.add(batch, tally)
                tally.add_kept(kept)
                writer.add(kept)
        report = CleanReport(tally, found, params)
        if not report.documents_kept:
            raise UserError(_nothing_kept(raw, report))
    return report


class Seen:
    """The documents that came before, as far as duplicates and near-duplicates are looked for."""

    def __init__(self, params: CleanParams):
        self._exactly = SeenHashes() if params.deduplicate else None
        self._nearly = SeenNearDuplicates()

    def add(self, batch: CleanBatch, tally: Tally) -> pl.DataFrame:
        """The documents of the batch that came for the first time."""
        documents, signatures = batch.documents, batch.signatures
        if self._exactly is not None:
            new = self._exactly.add(documents["id"].to_numpy())
            documents = _those(new, documents, tally, "duplicate")
            signatures = signatures[new] if signatures is not None else None
        if signatures is not None:
            documents = _those(self._nearly.add(signatures), documents, tally, "near_duplicate")
        return documents


def _those(new: NDArray[np.bool_], documents: pl.DataFrame, tally: Tally, reason: str) -> pl.DataFrame:
    """The documents that are new; the others are dropped for `reason`."""
    if new.all():
        return documents
    mask = pl.Series(new)
    tally.drop_all(pl.select(pl.when(~mask).then(pl.lit(reason))).to_series(), documents["text"])
    kept = documents.filter(mask)
    if len(kept) * 2 > len(new):
        return kept
    # A filtered column holds on to all of its text; where little is left, copy that.
    return kept.with_columns(pl.Series("text", kept["text"].to_list(), dtype=pl.String))


def _nothing_kept(raw: Path, report: CleanReport) -> str:
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items() if count)
    why = f"dropped: {dropped}" if dropped else "its files are empty"
    return (
        f"data.raw ({raw}) gives no document ({why}); see clean.mode, clean.min_chars and clean.max_chars, or add text."
    )


def _size(total: int, tally: Tally) -> int:
    """Bytes of documents there may be in all, compressed or not: at most what was read or what it grew to."""
    return max(total, tally.characters_in)
