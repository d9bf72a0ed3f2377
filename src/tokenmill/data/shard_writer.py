"""Let tasks write clean documents to shards of equal size.

The documents stay where they were cleaned. The writer knows their lengths, so it decides where a
shard ends, and starts a task that takes the documents of this shard and writes them.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self

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

CHUNKS_OF_A_SHARD = 4
"""About as many chunks as a shard has; there is one shard under way for so many tasks."""


class ShardWriter:
    """Writes documents with the columns of SCHEMA to part-00000.parquet, part-00001.parquet, … in
    `folder`, or to a store and its manifest to `folder`, and counts them.

    Where a shard ends depends on the documents alone, not on how they come. In memory are the
    documents of the next shard and of those that are being written.
    """

    def __init__(
        self,
        executor: Executor,
        folder: Path,
        tally: Tally,
        *,
        store: str | None = None,
    ):
        if store:
            Store(store)  # which is refused before any work
        self._executor = executor
        self._store = store
        self._stored: list[StoredShard] = []
        self._folder = folder.resolve()
        self._tally = tally
        self._write = partial(_write, store=store)
        self._pending: list[tuple[Task, Rows]] = []
        self._held = 0
        self._under_way: deque[tuple[Path, Task]] = deque()
        self._number = 0

    def add(self, documents: Task, lengths: NDArray[np.uint32], rows: Rows) -> None:
        """Add the documents in these rows of a table.

        Args:
            documents: the table.
            lengths: bytes of each of its texts, in UTF-8.
            rows: the rows to write.
        """
        sizes = lengths[rows].cumsum(dtype=np.int64)
        if len(rows) and 2 * sizes[-1] < lengths.sum(dtype=np.int64):
            (documents,) = self._executor.start(_copied, documents, rows)
            rows = np.arange(len(rows))
        before = 0
        while len(rows):
            wanted = before + SHARD_BYTES - self._held
            taken = min(int(np.searchsorted(sizes, wanted)) + 1, len(rows))
            self._pending.append((documents, rows[:taken]))
            self._held += int(sizes[taken - 1]) - before
            before = int(sizes[taken - 1])
            rows, sizes = rows[taken:], sizes[taken:]
            if self._held >= SHARD_BYTES:
                self._start()

    def finish(self) -> None:
        """Write the rest, and wait for every shard."""
        if self._pending:
            self._start()
        while self._under_way:
            self._wait()
        if self._store:
            write_manifest(self._folder, Manifest(store=self._store, shards=self._stored))

    def _start(self) -> None:
        while len(self._under_way) > self._executor.limit() // CHUNKS_OF_A_SHARD:
            self._wait()
        path = shard_file(self._folder, self._number)
        rows = [some for _, some in self._pending]
        tables = [documents for documents, _ in self._pending]
        (task,) = self._executor.start(self._write, path, rows, *tables)
        self._under_way.append((path, task))
        self._number += 1
        self._pending = []
        self._held = 0

    def _wait(self) -> None:
        path, task = self._under_way[0]
        size, stored, counts = self._executor.result(task)
        self._under_way.popleft()
        if stored:
            self._stored.append(stored)
        else:
            expect(path, size)
        self._tally.merge(counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for under_way in reversed(self._under_way):
            self._executor.cancel(under_way[1])


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
