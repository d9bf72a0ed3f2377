"""The stage `clean`: raw text to clean documents, in constant memory.

A chunk of the input is read and cleaned by a pure function, which an executor maps over all chunks.
Everything that depends on earlier documents (duplicates, counts, shards) happens here, one chunk
after the other in their order.
"""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from tokenmill.core.errors import UserError
from tokenmill.core.files import enough_room, write_directory
from tokenmill.data import filters
from tokenmill.data.chunks import CHUNK_BYTES, Chunk, Planner
from tokenmill.data.dedup import Hashes, SeenHashes, SeenNearDuplicates, signatures
from tokenmill.data.normalize import drop_boilerplate, normalize
from tokenmill.data.params import CleanParams
from tokenmill.data.pii import mask_pii
from tokenmill.data.readers import FORMATS
from tokenmill.data.report import Tally, report_on
from tokenmill.data.shard_writer import write_shards
from tokenmill.data.sources import find_sources
from tokenmill.display import Progress
from tokenmill.executor import Executor
from tokenmill.formats.chat_columns import as_lines, change_text
from tokenmill.formats.metrics import CleanReport, Letters
from tokenmill.formats.shards import SCHEMA, SHARD_BYTES
from tokenmill.words.cleaning import dropped_in_words, letters_warning


def clean(
    *,
    raw: Path,
    out: Path,
    params: CleanParams,
    encoding: str = "auto",
    parameter: str = "data.raw",
    executor: Executor,
    chunk_bytes: int = CHUNK_BYTES,
    shard_bytes: int = SHARD_BYTES,
) -> CleanReport:
    """Clean what is at `raw` into the folder `out`, which appears whole or not at all.

    The documents do not depend on `executor` and `chunk_bytes`. Errors about `raw` name the
    parameter `parameter`.

    Raises:
        UserError: a file cannot be read, or no document is kept.
    """
    if raw.resolve() in [out.resolve(), *out.resolve().parents]:
        raise UserError(
            f"{parameter} ({raw}) holds {out}, which this stage writes; set {parameter} to the raw "
            "text alone."
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
        chunks = Planner(params, progress.advance, chunk_bytes).chunks(found.sources)
        cleaned = executor.map(functools.partial(clean_chunk, params=params), chunks)
        write_shards(folder, _kept(cleaned, params, tally, progress), shard_bytes=shard_bytes)
        report = report_on(tally, found, raw, params, encoding)
        if not report.documents.kept:
            why = (
                f"dropped: {dropped_in_words(report.dropped)}"
                if report.documents.read
                else "its files are empty"
            )
            raise UserError(
                f"{parameter} ({raw}) gives no document ({why}); "
                "see clean.mode, clean.min_chars and clean.max_chars, or add text."
            )
    return report


@dataclass(frozen=True)
class CleanedChunk:
    """The documents of a chunk that pass by themselves, and the counts of the others."""

    documents: pl.DataFrame
    """The documents, with the columns of SCHEMA."""
    tally: Tally
    signatures: Hashes | None
    """MinHash signatures, one row per document; None if near-duplicates are kept."""
    size: int
    """Bytes on disk that were read for this chunk."""


def clean_chunk(chunk: Chunk, params: CleanParams) -> CleanedChunk:
    """Read a chunk, clean its texts, and drop those that do not pass."""
    tally = Tally()
    raw, sources = chunk.read(params, tally)
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
    near = params.near_duplicates
    return CleanedChunk(
        documents=pl.DataFrame(columns, schema=SCHEMA),
        signatures=signatures(as_lines(columns["text"]), near) if near.enabled else None,
        tally=tally,
        size=chunk.size,
    )


def _cleaned(raw: pl.Series, params: CleanParams, tally: Tally) -> pl.Series:
    def cleaned(text: pl.Series) -> pl.Series:
        """The text in the alphabet of `mode`. In a conversation the text of each turn is cleaned by
        itself."""
        normalized = normalize(text, params.mode)
        if params.mode == "strict":  # the others take none
            tally.add_letters(text, normalized)
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


def _kept(
    cleaned: Iterable[CleanedChunk], params: CleanParams, tally: Tally, progress: Progress
) -> Iterator[pl.DataFrame]:
    """The documents of each chunk that are no duplicates of earlier ones, counted in `tally`."""
    exact = SeenHashes()
    near = SeenNearDuplicates()
    for chunk in cleaned:
        taken = Letters(read=chunk.tally.letters, taken=chunk.tally.letters_taken)
        if not tally.read and (warning := letters_warning(taken, params.mode)):
            progress.note(f"at the beginning, {warning}")
        progress.advance(chunk.size)
        tally.merge(chunk.tally)
        documents = chunk.documents
        signatures = chunk.signatures
        if params.deduplicate:
            new = exact.add(documents["id"].to_numpy())
            documents = _new_documents(new, documents, tally, "duplicate")
            signatures = signatures[new] if signatures is not None else None
        if signatures is not None:
            documents = _new_documents(near.add(signatures), documents, tally, "near_duplicate")
        tally.add_kept(documents)
        yield documents


def _new_documents(
    new: NDArray[np.bool_], documents: pl.DataFrame, tally: Tally, reason: str
) -> pl.DataFrame:
    """The documents that are new; the others are dropped for `reason`."""
    if new.all():
        return documents
    mask = pl.Series(new)
    reasons = pl.select(pl.when(~mask).then(pl.lit(reason))).to_series()
    tally.drop_all(reasons, documents["text"], documents["source"])
    kept = documents.filter(mask)
    if len(kept) * 2 > len(new):
        return kept
    # A filtered column keeps all of its text in memory; if little is left, copy that.
    return kept.with_columns(pl.Series("text", kept["text"].to_list(), dtype=pl.String))
