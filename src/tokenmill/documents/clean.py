"""The stage's work: pieces of the input are cleaned side by side, and taken up in their order, in constant memory.

Reading and cleaning a piece is a pure function, mapped by an engine over threads or machines. What needs to know of the
documents before (duplicates, counts, shards) happens here, one piece after the other.
"""

import functools
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tokenmill.display.progress import Progress
from tokenmill.documents.batch import CleanBatch, clean_piece
from tokenmill.documents.dataset import Writer
from tokenmill.documents.duplicates import SeenHashes
from tokenmill.documents.near_duplicates import SeenNearDuplicates
from tokenmill.documents.params import CleanParams
from tokenmill.documents.pieces import Planner
from tokenmill.documents.report import CleanReport, Tally
from tokenmill.documents.sources import find
from tokenmill.engine.engine import Engine
from tokenmill.errors import UserError
from tokenmill.files import enough_room, write_directory


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
