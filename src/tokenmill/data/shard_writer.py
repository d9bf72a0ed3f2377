"""Let tasks write clean documents to shards of equal size.

The documents stay where they were cleaned. The writer knows their lengths, so it decides where a
shard ends, and starts a task that takes the documents of this shard and writes them.
"""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tokenmill.core.files import expect
from tokenmill.data.report import Tally
from tokenmill.executor import Executor, Task
from tokenmill.formats.shards import ROW_GROUP_BYTES, SHARD_BYTES, shard_file, write_shard

Rows = NDArray[np.intp]
"""Numbers of rows in a table, ascending."""

TASKS_OF_A_SHARD = 4
"""About as many chunks as a shard has; there is one shard under way for so many tasks."""


class ShardWriter:
    """Writes documents with the columns of SCHEMA to part-00000.parquet, part-00001.parquet, … in
    `folder`, and counts them.

    Where a shard ends depends on the documents alone, not on how they come. In memory are the
    documents of the next shard and of those that are being written.
    """

    def __init__(
        self,
        executor: Executor,
        folder: Path,
        tally: Tally,
        *,
        shard_bytes: int = SHARD_BYTES,
        row_group_bytes: int = ROW_GROUP_BYTES,
    ):
        self._executor = executor
        self._folder = folder.resolve()
        self._tally = tally
        self._shard_bytes = shard_bytes
        self._row_group_bytes = row_group_bytes
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
            wanted = before + self._shard_bytes - self._held
            taken = min(int(np.searchsorted(sizes, wanted)) + 1, len(rows))
            self._pending.append((documents, rows[:taken]))
            self._held += int(sizes[taken - 1]) - before
            before = int(sizes[taken - 1])
            rows, sizes = rows[taken:], sizes[taken:]
            if self._held >= self._shard_bytes:
                self._start()

    def finish(self) -> None:
        """Write the rest, and wait for every shard."""
        if self._pending:
            self._start()
        while self._under_way:
            self._wait()

    def _start(self) -> None:
        while len(self._under_way) > self._executor.limit() // TASKS_OF_A_SHARD:
            self._wait()
        path = shard_file(self._folder, self._number)
        rows = [some for _, some in self._pending]
        tables = [documents for documents, _ in self._pending]
        (task,) = self._executor.start(_write, path, self._row_group_bytes, rows, *tables)
        self._under_way.append((path, task))
        self._number += 1
        self._pending = []
        self._held = 0

    def _wait(self) -> None:
        path, task = self._under_way[0]
        size, counts = self._executor.result(task)
        self._under_way.popleft()
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
    path: Path, row_group_bytes: int, rows: Sequence[Rows], *tables: pl.DataFrame
) -> tuple[int, Tally]:
    """Write one shard; its size in bytes, and the counts of its documents."""
    documents = pl.concat(
        [table[some] for table, some in zip(tables, rows, strict=True)], rechunk=True
    )
    write_shard(path, documents, row_group_bytes)
    tally = Tally()
    tally.add_kept(documents)
    return path.stat().st_size, tally
