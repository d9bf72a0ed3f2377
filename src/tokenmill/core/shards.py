"""The clean documents on disk: a folder of parquet shards, written once and read in constant memory.

Columns: `text`; `source`, the file it came from relative to data.raw; `id`, the XXH3 64-bit hash of the text's
UTF-8. Shards end where SHARD_BYTES of text are reached and hold row groups of about ROW_GROUP_BYTES, both by the
text alone: the same documents are the same bytes.
"""

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import polars as pl

from tokenmill.core.errors import UserError

SCHEMA = {"text": pl.String, "source": pl.String, "id": pl.UInt64}


SHARD_BYTES = 32 << 20
"""UTF-8 bytes of text at which a shard ends: two are in memory, and one is compressed while the next one fills."""


ROW_GROUP_BYTES = 16 << 20
"""UTF-8 bytes of text in a row group, on the average of its shard."""


ROW_GROUP_ROWS = 1 << 17
"""Rows in a row group at most."""


ZSTD_LEVEL = 1


@dataclass(frozen=True)
class Totals:
    """How much text a folder holds."""

    documents: int
    bytes: int
    """Of UTF-8."""
    chars: int
    """Unicode code points."""


class Writer:
    """Writes documents to part-00000.parquet, part-00001.parquet, … in a folder; a context manager.

    A full shard is written by a thread while the next one fills, so that at most two are in memory.
    """

    def __init__(self, folder: Path, shard_bytes: int = SHARD_BYTES) -> None:
        self._folder, self._shard_bytes = folder, shard_bytes
        self._pending: list[pl.DataFrame] = []
        self._bytes = 0
        self._parts = 0
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None):
        try:
            if kind is None:
                self._flush()
                self._finish()
        finally:
            self._thread.shutdown()

    def add(self, documents: pl.DataFrame) -> None:
        """Append documents with the columns of SCHEMA; the shards do not depend on how they are grouped."""
        while len(documents):
            sizes = documents["text"].str.len_bytes().cast(pl.Int64).cum_sum().to_numpy()
            taken = min(int(np.searchsorted(sizes, self._shard_bytes - self._bytes)) + 1, len(documents))
            self._pending.append(documents[:taken])
            self._bytes += int(sizes[taken - 1])
            documents = documents[taken:]
            if self._bytes >= self._shard_bytes:
                self._flush()

    def _flush(self) -> None:
        """Hand the pending documents to the thread, once it is done with the shard before."""
        self._finish()
        if self._pending:
            path = self._folder / f"part-{self._parts:05}.parquet"
            self._under_way = self._thread.submit(write_shard, path, self._pending, self._bytes)
            self._pending, self._bytes = [], 0
            self._parts += 1

    def _finish(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()


def write_shard(path: Path, documents: Sequence[pl.DataFrame], size: int) -> None:
    """Write documents with `size` bytes of text as one shard, with their totals in its footer."""
    shard = pl.concat(documents, rechunk=True)
    rows = min(max(1, len(shard) * ROW_GROUP_BYTES // max(1, size)), ROW_GROUP_ROWS)
    notes = {
        "documents": len(shard),
        "bytes": size,
        "chars": int(shard["text"].str.len_chars().sum()),
        "row_group_rows": rows,
    }
    try:
        shard.write_parquet(
            path,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            statistics=False,
            row_group_size=rows,
            metadata={key: str(value) for key, value in notes.items()},
        )
    except pl.exceptions.ComputeError as error:
        if number := re.search(r"\(os error (\d+)\)", str(error)):  # a full disk comes in polars' own clothes
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        raise


def shards(folder: Path) -> list[Path]:
    """The shards of a folder, in order.

    Raises:
        UserError: there are none.
    """
    found = sorted(folder.glob("part-*.parquet"))
    if not found:
        raise UserError(f"{folder} holds no part-*.parquet; run `dvc repro clean`.")
    return found


def batches(folder: Path, columns: Sequence[str] = ("text",)) -> Iterator[pl.DataFrame]:
    """The documents of a folder, in order, a row group (about 16 MiB of text) at a time.

    Example:
        for batch in batches(Path("data/clean"), ("text", "id")):
            print(len(batch), batch["text"][0])
    """
    for shard in shards(folder):
        yield from shard_batches(shard, columns)


def shard_batches(shard: Path, columns: Sequence[str] = ("text",)) -> Iterator[pl.DataFrame]:
    """The documents of one shard, a row group at a time."""
    promised = _promised(shard)
    table = pl.scan_parquet(shard, glob=False).select(columns)
    for start in range(0, promised["documents"], promised["row_group_rows"]):
        yield table.slice(start, promised["row_group_rows"]).collect()


def count(shard: Path) -> int:
    """The number of documents in a shard."""
    return _promised(shard)["documents"]


def excerpt(shard: Path, start: int, rows: int) -> pl.Series:
    """At most `rows` texts of a shard from document `start` on, and no more than a row group has."""
    table = pl.scan_parquet(shard, glob=False).select("text")
    return table.slice(start, min(rows, _promised(shard)["row_group_rows"])).collect()["text"]


def totals(folder: Path) -> Totals:
    """Documents, bytes and characters of a folder, from the shards' footers: no text is read."""
    promised = [_promised(shard) for shard in shards(folder)]
    return Totals(*(sum(shard[key] for shard in promised) for key in ("documents", "bytes", "chars")))


def _promised(shard: Path) -> dict[str, int]:
    """What the writer of a shard noted in it."""
    try:
        metadata = pl.read_parquet_metadata(shard)
        return {key: int(metadata[key]) for key in ("documents", "bytes", "chars", "row_group_rows")}
    except (KeyError, ValueError, pl.exceptions.PolarsError):
        raise UserError(f"{shard} is not a shard that `clean` wrote; run `dvc repro --force clean`.") from None
