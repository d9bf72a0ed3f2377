"""The stage's work: read, clean, filter and write documents in batches, in constant memory.

One thread reads, the others clean (polars works outside Python's lock), and the results are taken up in the
order in which they were read, so that threads change nothing but the time.
"""

import errno
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import xxhash

from tokenmill.display.progress import Progress
from tokenmill.documents.cleaning import cleaned
from tokenmill.documents.dataset import SCHEMA, Writer
from tokenmill.documents.duplicates import SeenHashes
from tokenmill.documents.params import CleanParams
from tokenmill.documents.readers import texts
from tokenmill.documents.report import CleanReport, Tally
from tokenmill.documents.sources import Found, find
from tokenmill.errors import UserError
from tokenmill.files import write_directory

BATCH_CHARS = 8 << 20
"""Characters at which a batch ends."""
BATCH_ROWS = 1 << 16
"""Documents at which a batch ends."""


@dataclass
class Batch:
    """Documents as they were read."""

    texts: list[str]
    sources: list[str]
    chars: int


def clean(*, raw: Path, out: Path, params: CleanParams) -> CleanReport:
    """Clean what is at `raw` into the folder `out`, which appears whole or not at all.

    Raises:
        UserError: nothing can be read, a file is broken, or no document is kept.
    """
    if raw.resolve() in [out.resolve(), *out.resolve().parents]:
        raise UserError(f"data.raw ({raw}) holds {out}, which this stage writes; set data.raw to the raw text alone.")
    found = find(raw)
    tally = Tally()
    seen = SeenHashes() if params.deduplicate else None
    total = sum(source.size for source in found.sources)
    try:
        with write_directory(out) as folder, Progress("clean", total) as progress:
            with Writer(folder) as writer:
                for documents in _pipelined(_batches(found, params, tally, progress), params, tally):
                    new = documents if seen is None else _first_ones(documents, seen, tally)
                    tally.kept += len(new)
                    tally.characters_out += int(new["text"].str.len_chars().sum())
                    writer.add(new)
            report = CleanReport.of(tally, len(found.sources), found.skipped)
            if not report.documents_kept:
                raise UserError(_nothing_kept(raw, report))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise UserError(_no_space(out, total, tally)) from None
        raise
    return report


def _batches(found: Found, params: CleanParams, tally: Tally, progress: Progress) -> Iterator[Batch]:
    """All texts of all sources, grouped; the groups change nothing but the time."""
    batch = Batch([], [], 0)
    for source in found.sources:
        for text in texts(source, params, tally, progress.advance):
            batch.texts.append(text)
            batch.sources.append(source.name)
            batch.chars += len(text)
            if batch.chars >= BATCH_CHARS or len(batch.texts) >= BATCH_ROWS:
                yield batch
                batch = Batch([], [], 0)
    if batch.texts:
        yield batch


def _pipelined(batches: Iterable[Batch], params: CleanParams, tally: Tally) -> Iterator[pl.DataFrame]:
    """The batches cleaned by threads, in their order; no more are under way than there are threads."""
    workers = max(1, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        under_way: deque[Future[tuple[pl.DataFrame, dict[str, int]]]] = deque()
        for batch in batches:
            tally.characters_in += batch.chars
            under_way.append(pool.submit(clean_batch, batch, params))
            if len(under_way) > workers:
                yield _counted(under_way.popleft(), tally)
        while under_way:
            yield _counted(under_way.popleft(), tally)


def _counted(future: "Future[tuple[pl.DataFrame, dict[str, int]]]", tally: Tally) -> pl.DataFrame:
    documents, dropped = future.result()
    tally.dropped.update(dropped)
    return documents


def clean_batch(batch: Batch, params: CleanParams) -> tuple[pl.DataFrame, dict[str, int]]:
    """The documents of a batch that pass, with the columns of SCHEMA, and how many do not, by reason."""
    text = cleaned(pl.Series("text", batch.texts, dtype=pl.String), params.mode)
    chars = text.str.len_chars()
    longest = params.max_chars or np.iinfo(np.uint32).max
    dropped = {
        "empty": int((chars == 0).sum()),
        "too_short": int(((chars > 0) & (chars < params.min_chars)).sum()),
        "too_long": int((chars > longest).sum()),
    }
    passed = (chars >= params.min_chars) & (chars <= longest)
    # By way of Python's bytes, which the hash needs: the new column also lets go of the texts before cleaning.
    data = text.filter(passed).cast(pl.Binary).to_list()
    ids = np.fromiter(map(xxhash.xxh3_64_intdigest, data), dtype=np.uint64, count=len(data))
    columns = {
        "text": pl.Series(data, dtype=pl.Binary).cast(pl.String),
        "source": pl.Series(batch.sources, dtype=pl.String).filter(passed),
        "id": pl.Series(ids),
    }
    return pl.DataFrame(columns, schema=SCHEMA), dropped


def _first_ones(documents: pl.DataFrame, seen: SeenHashes, tally: Tally) -> pl.DataFrame:
    """The documents whose text was not seen before."""
    new = seen.add(documents["id"].to_numpy())
    duplicates = len(new) - int(new.sum())
    if not duplicates:
        return documents
    tally.dropped["duplicate"] += duplicates
    kept = documents.filter(pl.Series(new))
    if duplicates * 2 < len(new):
        return kept
    # A filtered column holds on to all of its text; where little is left, copy that.
    return kept.with_columns(pl.Series("text", kept["text"].to_list(), dtype=pl.String))


def _nothing_kept(raw: Path, report: CleanReport) -> str:
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items() if count)
    why = f"dropped: {dropped}" if dropped else "its files are empty"
    return (
        f"data.raw ({raw}) gives no document ({why}); see clean.mode, clean.min_chars and clean.max_chars, or add text."
    )


def _no_space(out: Path, total: int, tally: Tally) -> str:
    return (
        f"{out}: no space left on the disk after {tally.characters_out:,} characters; "
        f"free about {max(total, tally.characters_in) / 1e9:.1f} GB (the size of the input) and run `dvc repro` again."
    )
