"""Have duplicates found, here or by tasks, with the same verdicts.

Here exact duplicates of a smaller text are found: the hashes of its texts are few. The other keys
stay on the machines that clean. They are gathered in waves of chunks, divided by their last bits,
and compared, each part by a task. What is found comes here, where the wave is judged; another task
for each part then adds the keys of the documents that are kept.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tokenmill.data.dedup import (
    Comparison,
    Division,
    Run,
    Verdict,
    add_new,
    compare,
    divide,
    grown,
    judge,
    pop_short,
)
from tokenmill.data.params import CleanParams
from tokenmill.data.report import Tally, examples_of
from tokenmill.data.shard_writer import Documents
from tokenmill.executors.base import Executor, Task
from tokenmill.formats.metrics import Example

HERE_BYTES = 16 << 30
"""Of a raw text up to this size, the hashes of texts come to the caller: 80 MB for documents of
2 kB."""

TASKS_OF_A_PART = 3
"""The keys are divided into one part for so many tasks under way. A comparison takes the driver as
much time as a chunk."""

FEWEST_PARTS = 2
"""A task gives several values, or one that is in no tuple."""

MOST_PARTS = 16
"""Ray sends each value of less than 100 kB to the driver. With more parts, these would be so
small."""


@dataclass(frozen=True)
class CleanedChunk:
    """A cleaned chunk. Its documents and their keys are where it was cleaned."""

    lengths: NDArray[np.uint32]
    """UTF-8 bytes of each document, marks of turns included."""
    documents: Task
    keys: Task
    """64-bit hashes, shape (documents, 1 + bands): that of the text, then the MinHash signature."""


Judged: TypeAlias = tuple[CleanedChunk, Verdict]
"""A chunk, and the verdict on its documents."""


def new_documents(
    chunks: Iterable[CleanedChunk],
    params: CleanParams,
    executor: Executor,
    tally: Tally,
    size: int,
) -> Iterator[Documents]:
    """The documents of each chunk, their lengths, and which are no duplicates or near-duplicates of
    earlier ones; those are counted. `size` is that of the raw text on disk in bytes."""
    exact = params.deduplicate
    by_tasks = params.near_duplicates.enabled or (exact and size > HERE_BYTES)
    judged = _judged_by_tasks if by_tasks else _judged_here
    for chunk, verdict in judged(chunks, executor, exact=exact):
        near = verdict.unique & ~verdict.kept
        for reason, dropped in (("duplicate", ~verdict.unique), ("near_duplicate", near)):
            rows = np.flatnonzero(dropped)
            if not len(rows):
                continue
            shown = rows[: tally.examples_wanted(reason)]
            examples = []
            if len(shown):
                (task,) = executor.start(_examples, chunk.documents, shown)
                examples = executor.result(task)
            tally.drop_some(reason, examples, count=len(rows))
        yield chunk.documents, chunk.lengths, verdict.kept


def _judged_here(
    chunks: Iterable[CleanedChunk], executor: Executor, *, exact: bool
) -> Iterator[Judged]:
    runs: list[Run] = []
    for chunk in chunks:
        unique = np.ones(len(chunk.lengths), dtype=np.bool_)
        if exact:
            unique = add_new(executor.result(chunk.keys)[:, 0], runs)
        yield chunk, Verdict(unique, unique)


def _judged_by_tasks(
    chunks: Iterable[CleanedChunk], executor: Executor, *, exact: bool
) -> Iterator[Judged]:
    keys = DistantKeys(executor, exact=exact)
    source = iter(chunks)
    wave: Wave | None = None
    # While a wave is compared, the chunks of the next one are cleaned
    while cleaned := list(itertools.islice(source, executor.limit() * executor.wave_limits)):
        judged = keys.judge(wave) if wave else []
        wave = keys.compare(cleaned)
        yield from judged
    if wave:
        yield from keys.judge(wave)


def _examples(documents: pl.DataFrame, rows: NDArray[np.intp]) -> list[Example]:
    """The documents in these rows as examples."""
    shown = documents[rows]
    return examples_of(shown["text"], shown["source"])


@dataclass(frozen=True)
class Wave:
    """Chunks whose documents are judged together, while they are compared."""

    chunks: Sequence[CleanedChunk]
    starts: Sequence[int]
    """The number of each chunk's first document; last, how many documents there are."""
    parts: Sequence[Sequence[Task]]
    """The keys in each range, from each machine that cleaned chunks of this wave."""
    comparisons: Sequence[Task]
    """What is found in each range."""


@dataclass(frozen=True)
class DistantRun:
    """A run of hashes that lies where a task made it."""

    task: Task
    length: int
    """How many hashes it has at most."""

    def __len__(self) -> int:
        return self.length


class DistantKeys:
    """The keys of the documents kept so far, divided by their last bits, where tasks made them."""

    def __init__(self, executor: Executor, *, exact: bool):
        self._executor = executor
        self._exact = exact
        parts = max(FEWEST_PARTS, min(executor.limit() // TASKS_OF_A_PART, MOST_PARTS))
        self._runs: list[list[DistantRun]] = [[] for _ in range(parts)]

    def compare(self, chunks: Sequence[CleanedChunk]) -> Wave:
        """Start to compare chunks with the documents kept so far and with each other."""
        starts = list(itertools.accumulate((len(one.lengths) for one in chunks), initial=0))
        machines: defaultdict[str | None, list[int]] = defaultdict(list)
        for number, chunk in enumerate(chunks):
            machines[chunk.keys.node].append(number)
        divided = [self._divided(chunks, starts, numbers) for numbers in machines.values()]
        parts = [_rotated(tasks, part) for part, tasks in enumerate(zip(*divided, strict=True))]
        comparisons: list[Task] = []
        for tasks, runs in zip(parts, self._runs, strict=True):
            comparisons += self._executor.start(compare, *tasks, *(run.task for run in runs))
        return Wave(chunks, starts, parts, comparisons)

    def _divided(
        self, chunks: Sequence[CleanedChunk], starts: Sequence[int], numbers: Sequence[int]
    ) -> tuple[Task, ...]:
        """The parts of the keys of those chunks that one machine has."""
        parts = len(self._runs)
        division = Division(parts, self._exact, [starts[number] for number in numbers])
        keys = [chunks[number].keys for number in numbers]
        return self._executor.start(divide, division, *keys, values=parts)

    def judge(self, wave: Wave) -> list[Judged]:
        """The verdict on each chunk of a compared wave. Its new keys are then among those kept."""
        found: list[Comparison] = [self._executor.result(task) for task in wave.comparisons]
        verdict = judge(wave.starts[-1], found)
        bits = verdict.bits()
        for tasks, runs, part in zip(wave.parts, self._runs, found, strict=True):
            if not part.distinct:
                continue
            older = pop_short(runs, part.distinct)
            length = part.distinct + sum(map(len, older))
            taken = (*tasks, *(run.task for run in older))
            (task,) = self._executor.start(grown, bits, *taken, keep=tasks)
            runs.append(DistantRun(task, length))
        bounds = itertools.pairwise(wave.starts)
        return [
            (chunk, Verdict(verdict.unique[start:end], verdict.kept[start:end]))
            for chunk, (start, end) in zip(wave.chunks, bounds, strict=True)
        ]


def _rotated(tasks: Sequence[Task], by: int) -> list[Task]:
    """A task runs where most of what it takes is, and of equals where the first is. So the parts
    are on all machines."""
    by %= len(tasks)
    return [*tasks[by:], *tasks[:by]]
