"""Let tasks write clean documents to shards of equal size.

The documents stay where they were cleaned. From their lengths it is decided here where a shard
ends, and a task is started that takes the documents of this shard and writes them.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tokenmill.core.files import expect, sha256_of
from tokenmill.data.report import Tally
from tokenmill.executors.base import Executor, Task
from tokenmill.formats.shards import SHARD_BYTES, shard_file, write_shard
from tokenmill.formats.store import Manifest, Store, StoredShard, write_manifest
from tokenmill.temporary import temporary_folder

Documents: TypeAlias = tuple[Task, NDArray[np.uint32], NDArray[np.bool_]]
"""A table, the bytes of each of its texts in UTF-8, and which of them to write."""

Bits: TypeAlias = NDArray[np.uint8]
"""Some rows of a table, as packed bits, one for each row that it has. So they are small enough to
travel with a task."""


def write_shards(
    documents: Iterable[Documents],
    folder: Path,
    tally: Tally,
    *,
    executor: Executor,
    store: str | None = None,
) -> None:
    """Write documents with the columns of SCHEMA to part-00000.parquet, part-00001.parquet, … in
    `folder`, or to a store and its manifest to `folder`, and count them.

    Where a shard ends depends on the documents alone, not on how they come. In memory are the
    documents of the next shard and of those that are being written.
    """
    if store:
        Store(store)  # which is refused before any work
    folder = folder.resolve()
    write = partial(_write, store=store)

    def start(number: int, shard: list[tuple[Task, Bits]]) -> tuple[Task, ...]:
        tables, chosen = zip(*shard, strict=True)
        return executor.start(write, shard_file(folder, number), chosen, *tables)

    starting = map(start, itertools.count(), _divided(documents, executor))
    # As many shards as the text of all tasks under way has, and one more
    few = executor.in_order(
        starting, lambda: executor.limit() * executor.task_bytes // SHARD_BYTES + 1
    )
    stored: list[StoredShard] = []
    with contextlib.closing(few) as started:
        for number, (task,) in enumerate(started):
            size, in_store, counts = executor.result(task)
            if in_store:
                stored.append(in_store)
            else:
                expect(shard_file(folder, number), size)
            tally.merge(counts)
    if store:
        write_manifest(folder, Manifest(store=store, shards=stored))


def _divided(
    documents: Iterable[Documents], executor: Executor
) -> Iterator[list[tuple[Task, Bits]]]:
    """The tables of each shard, and the rows of each that belong to it."""
    shard: list[tuple[Task, Bits]] = []
    held = 0
    for cleaned, lengths, kept in documents:
        table, height = cleaned, len(kept)
        rows = np.flatnonzero(kept)
        sizes = lengths[rows].cumsum(dtype=np.int64)
        if len(rows) and 2 * sizes[-1] < lengths.sum(dtype=np.int64):
            (table,) = executor.start(_copied, cleaned, np.packbits(kept))
            rows, height = np.arange(len(rows)), len(rows)
        before = 0
        while len(rows):
            wanted = before + SHARD_BYTES - held
            taken = min(int(np.searchsorted(sizes, wanted)) + 1, len(rows))
            shard.append((table, _bits(rows[:taken], height)))
            held += int(sizes[taken - 1]) - before
            before = int(sizes[taken - 1])
            rows, sizes = rows[taken:], sizes[taken:]
            if held >= SHARD_BYTES:
                yield shard
                shard, held = [], 0
    if shard:
        yield shard


def _bits(rows: NDArray[np.intp], height: int) -> Bits:
    """These rows of a table of so many."""
    chosen = np.zeros(height, dtype=np.bool_)
    chosen[rows] = True
    return np.packbits(chosen)


def _rows(table: pl.DataFrame, chosen: Bits) -> pl.DataFrame:
    return table.filter(pl.Series(np.unpackbits(chosen, count=len(table)).view(np.bool_)))


def _copied(documents: pl.DataFrame, chosen: Bits) -> pl.DataFrame:
    """The documents in these rows. A filtered column keeps all of its text in memory; this one does
    not."""
    kept = _rows(documents, chosen)
    return kept.with_columns(pl.Series("text", kept["text"].to_list(), dtype=pl.String))


def _write(
    path: Path, chosen: Sequence[Bits], *tables: pl.DataFrame, store: str | None
) -> tuple[int, StoredShard | None, Tally]:
    """Write one shard; its size in bytes, what the store has of it, and the counts of its
    documents."""
    documents = pl.concat(map(_rows, tables, chosen), rechunk=True)
    tally = Tally()
    tally.add_kept(documents)
    if store is None:
        write_shard(path, documents)
        return path.stat().st_size, None, tally
    with temporary_folder() as folder:
        copy = folder / path.name
        footer = write_shard(copy, documents)
        stored = StoredShard(size=copy.stat().st_size, sha256=sha256_of(copy), footer=footer)
        Store(store).put(copy, stored)
    return stored.size, stored, tally
