"""The stage `clean`: raw text to clean documents, in constant memory.

A task reads and cleans a chunk of the input. Its documents stay where it ran; a small summary comes
here, where everything that depends on earlier documents is decided, one chunk after the other in
their order: which are duplicates, and where a shard ends. A second task writes a shard.
"""

import contextlib
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from tokenmill.core.errors import UserError
from tokenmill.core.files import enough_room, write_directory
from tokenmill.data import filters
from tokenmill.data.chunks import Chunk, Planner
from tokenmill.data.dedup import Hashes
from tokenmill.data.duplicates import CleanedChunk, new_documents
from tokenmill.data.minhash import signatures
from tokenmill.data.params import CleanParams
from tokenmill.data.pii import mask_pii
from tokenmill.data.readers import FORMATS
from tokenmill.data.report import Tally, report_on
from tokenmill.data.shard_writer import write_shards
from tokenmill.data.sources import find_sources
from tokenmill.executors.base import Executor
from tokenmill.formats.chat_columns import as_lines, change_text
from tokenmill.formats.metrics import CleanReport, Letters
from tokenmill.formats.raw_text import Raw, holds
from tokenmill.formats.shards import SCHEMA, SHARD_BYTES
from tokenmill.normalize import drop_boilerplate, lost_letters, normalize
from tokenmill.progress import Progress
from tokenmill.words.cleaning import dropped_in_words, letters_warning


def clean(
    *,
    raw: Raw,
    out: Path,
    params: CleanParams,
    encoding: str = "auto",
    parameter: str = "data.raw",
    executor: Executor,
    store: str | None = None,
) -> CleanReport:
    """Clean what is at `raw` into the folder `out`, which appears whole or not at all; with a
    `store`, the shards go there and their manifest to `out`.

    The documents depend on `raw`, `params` and `encoding` alone. Errors about `raw` name the
    parameter `parameter`.

    Raises:
        UserError: a file cannot be read, or no document is kept.
    """
    if written := [place for place in (str(out), store) if place and holds(raw, place)]:
        raise UserError(
            f"{parameter} ({raw}) holds {written[0]}, which this stage writes; set {parameter} to "
            "the raw text alone."
        )
    found = find_sources(raw, FORMATS, encoding, parameter)
    tally = Tally()
    on_disk = sum(source.size for source in found.sources)
    with (
        # Archives grow when they are read, so the size on disk may be too low
        enough_room(out, lambda: max(on_disk, tally.characters_in)),
        write_directory(out) as folder,
        Progress("clean", on_disk) as progress,
    ):
        chunks = Planner(params, progress.advance, executor.task_bytes).chunks(found.sources)
        cleaned = cleaned_chunks(chunks, params, executor, tally, progress)
        with contextlib.closing(cleaned):
            new = new_documents(cleaned, params, executor, tally, on_disk)
            write_shards(new, folder, tally, executor=executor, store=store)
        tally.refuse_unread()
        report = report_on(tally, found, raw, params, encoding)
        if not report.documents.kept:
            raise _no_document(report, f"{parameter} ({raw})")
    return report


def _no_document(report: CleanReport, raw: str) -> UserError:
    why = (
        f"dropped: {dropped_in_words(report.dropped)}"
        if report.documents.read
        else "its files are empty"
    )
    return UserError(
        f"{raw} gives no document ({why}); see clean.mode, clean.min_chars and clean.max_chars, "
        "or add text."
    )


@dataclass(frozen=True)
class Summary:
    """What is known about a cleaned chunk without its text."""

    lengths: NDArray[np.uint32]
    """UTF-8 bytes of each document that passes by itself, marks of turns included."""
    tally: Tally
    """Counts of what was read, and of the documents that do not pass."""
    size: int
    """Bytes on disk that were read for this chunk."""
    rest: Chunk | None
    """What is left of the chunk, if it was too large to be cleaned at once."""


def clean_chunk(chunk: Chunk, params: CleanParams) -> tuple[Summary, pl.DataFrame, Hashes]:
    """Read a chunk, clean its texts, and drop those that do not pass. The documents that are left
    have the columns of SCHEMA, and the keys of `CleanedChunk`."""
    tally = Tally()
    raw, sources, rest = chunk.read(params, tally)
    tally.add_read(raw, sources)
    text = _cleaned(raw, params, tally)
    reasons = _drop_reasons(as_lines(text), params)
    if reasons.null_count() < len(reasons):
        # The example of an empty text is the raw one
        tally.drop_all(reasons, text.zip_with(text != "", raw), sources)
    del raw
    passed = reasons.is_null()
    # The hash needs Python's bytes. Building the column from them also releases the texts before
    # cleaning.
    data = text.filter(passed).cast(pl.Binary).to_list()
    del text
    ids = np.fromiter(map(xxhash.xxh3_64_intdigest, data), dtype=np.uint64, count=len(data))
    columns = {
        "text": pl.Series(data, dtype=pl.Binary).cast(pl.String),
        "source": sources.filter(passed),
        "id": pl.Series(ids),
    }
    keys = ids[:, np.newaxis]
    if params.near_duplicates.enabled:
        bands = signatures(as_lines(columns["text"]), params.near_duplicates)
        keys = np.concatenate([keys, bands], axis=1)
    lengths = columns["text"].str.len_bytes().to_numpy()
    summary = Summary(lengths, tally, chunk.size, Chunk(rest) if rest else None)
    return summary, pl.DataFrame(columns, schema=SCHEMA), keys


def _cleaned(raw: pl.Series, params: CleanParams, tally: Tally) -> pl.Series:
    def cleaned(text: pl.Series) -> pl.Series:
        """The text in the alphabet of `mode`. In a conversation the text of each turn is cleaned by
        itself."""
        normalized = normalize(text, params.mode)
        if params.mode == "strict":  # the others take none
            tally.add_letters(text, lost_letters())
        if params.drop_boilerplate:
            normalized = drop_boilerplate(normalized)
        return mask_pii(normalized, params.mask)

    return change_text(raw, cleaned)


def _drop_reasons(text: pl.Series, params: CleanParams) -> pl.Series:
    """The reason to drop each text (without marks) by itself; null if it passes."""
    chars = pl.col("chars")
    length = (
        pl.when(chars == 0)
        .then(pl.lit("empty"))
        .when(chars < params.min_chars)
        .then(pl.lit("too_short"))
    )
    if params.max_chars is not None:
        length = length.when(chars > params.max_chars).then(pl.lit("too_long"))
    columns = {"chars": text.str.len_chars(), "quality": filters.drop_reasons(text, params.filters)}
    return pl.DataFrame(columns).select(pl.coalesce(length, "quality").alias("reason")).to_series()


def cleaned_chunks(
    chunks: Iterable[Chunk],
    params: CleanParams,
    executor: Executor,
    tally: Tally,
    progress: Progress,
) -> Generator[CleanedChunk, None, None]:
    """The chunks, cleaned, and counted in `tally`. Those that will be one shard are cleaned on one
    machine."""
    clean_one = partial(clean_chunk, params=params)
    starting = (
        executor.start(
            clean_one, chunk, values=3, group=number * executor.task_bytes // SHARD_BYTES
        )
        for number, chunk in enumerate(chunks)
    )
    with contextlib.closing(executor.in_order(starting)) as started:
        for one in started:
            tasks = one
            while tasks:
                counted, documents, keys = tasks
                summary: Summary = executor.result(counted)
                taken = Letters(read=summary.tally.letters, taken=summary.tally.letters_taken)
                if not tally.read and (warning := letters_warning(taken, params.mode)):
                    progress.note(f"at the beginning, {warning}")
                progress.advance(summary.size)
                tally.merge(summary.tally)
                yield CleanedChunk(summary.lengths, documents, keys)
                tasks = summary.rest and executor.start(clean_one, summary.rest, values=3)
