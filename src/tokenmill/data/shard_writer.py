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
from tokenmill.executor import Executor, Task
from tokenmill.formats.shards import SHARD_BYTES, shard_file, write_shard
from tokenmill.formats.store import Manifest, Store, StoredShard, write_manifest
from tokenmill.temporary import temporary_folder

Rows = NDArray[np.intp]
"""Numbers of rows in a table, ascending."""

Documents: TypeAlias = tuple[Task, NDArray[np.uint32], Rows]
"""A table, the bytes of each of its texts in UTF-8, and the rows to write."""


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

    def start(number: int, shard: list[tuple[Task, Rows]]) -> tuple[Task, ...]:
        tables, rows = zip(*shard, strict=True)
        return executor.start(write, shard_file(folder, number), rows, *tables)

    starting = map(start, itertools.count(), _divided(documents, executor))
    few = executor.in_order(starting, lambda: _shards_at_once(executor))
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


def _shards_at_once(executor: Executor) -> int:
    """As many shards as the text of all tasks under way has, and one more."""
    return executor.limit() * executor.task_bytes // SHARD_BYTES + 1


def _divided(
    documents: Iterable[Documents], executor: Executor
) -> Iterator[list[tuple[Task, Rows]]]:
    """The tables of each shard, and the rows of each that belong to it."""
    shard: list[tuple[Task, Rows]] = []
    held = 0
    for cleaned, lengths, new in documents:
        table, rows = cleaned, new
        sizes = lengths[rows].cumsum(dtype=np.int64)
        if len(rows) and 2 * sizes[-1] < lengths.sum(dtype=np.int64):
            (table,) = executor.start(_copied, cleaned, new)
            rows = np.arange(len(new))
        before = 0
        while len(rows):
            wanted = before + SHARD_BYTES - held
            taken = min(int(np.searchsorted(sizes, wanted)) + 1, len(rows))
            shard.append((table, rows[:taken]))
            held += int(sizes[taken - 1]) - before
            before = int(sizes[taken - 1])
            rows, sizes = rows[taken:], sizes[taken:]
            if held >= SHARD_BYTES:
                yield shard
                shard, held = [], 0
    if shard:
        yield shard


def _copied(documents: pl.DataFrame, rows: Rows) -> pl.DataFrame:
    """The documents in these rows. A filtered column keeps all of its text in memory; this one does
    not."""
    kept = documents[rows]
    return kept.with_columns(pl.Series("text", kept["text"].to_list(), dtype=pl.String))


def _write(
    path: Path, rows: Sequence[Rows], *tables: pl.DataFrame, store: str | None
) -> tuple[int, StoredShard | None, Tally]:
    """Write one shard; its size in bytes, what the store has of it, and the counts of its
    documents."""
    documents = pl.concat(
        [table[some] for table, some in zip(tables, rows, strict=True)], rechunk=True
    )
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
