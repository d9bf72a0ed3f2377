import itertools
import math
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.material import NEAR_DUPLICATES, parameters
from tests.data.waves import DOCUMENT, by_sets, divided, table
from tokenmill.data.dedup import MERGE_RATIO
from tokenmill.data.duplicates import (
    FEWEST_PARTS,
    HERE_BYTES,
    MOST_PARTS,
    TASKS_OF_A_PART,
    CleanedChunk,
    DistantKeys,
    new_documents,
)
from tokenmill.data.report import EXAMPLES, Tally
from tokenmill.executors.base import Task
from tokenmill.executors.threads import ThreadExecutor

RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Started:
    """A task that was started: its function, its machine, and how many tasks it takes and keeps."""

    function: str
    machine: str | None
    takes: int
    keeps: int


class Machines(ThreadExecutor):
    """Threads that stand for three machines. The limit is `first` when it is first asked for, from
    which the number of parts follows, and then one after the other of `waves`."""

    def __init__(self, first: int = 1, waves: Sequence[int] = (2,), *, wave_limits: int = 1):
        super().__init__(threads=2)
        self.wave_limits = wave_limits
        self._limits = itertools.chain([first], itertools.cycle(waves))
        self.started: list[Started] = []

    def limit(self) -> int:
        return next(self._limits)

    def start(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        group: int | None = None,
        **options: Any,
    ) -> tuple[Task, ...]:
        taken = [one for one in arguments if isinstance(one, Task)]
        machine = taken[0].node if taken else f"machine {group}"
        kept = len(options.get("keep", ()))
        self.started.append(Started(function.__name__, machine, len(taken), kept))
        tasks = super().start(function, *arguments, **options)
        return tuple(replace(one, node=machine) for one in tasks)

    def starts_of(self, function: str) -> list[Started]:
        return [one for one in self.started if one.function == function]


def cleaned(executor: Machines, keys: np.ndarray, first: int = 0, machine: int = 0) -> CleanedChunk:
    """A chunk of documents whose texts are their numbers."""
    texts = pl.Series([str(first + row) for row in range(len(keys))], dtype=pl.String)
    documents = pl.DataFrame({"text": texts, "source": texts})
    (where,) = executor.start(lambda: documents)
    (its,) = executor.start(lambda: keys, group=machine)
    return CleanedChunk(np.full(len(keys), 9, dtype=np.uint32), where, its)


@given(st.lists(DOCUMENT, max_size=30), st.booleans(), st.booleans(), st.data())
def test_the_verdicts_and_counts_of_sets(documents, exact, near, data):
    """Whatever the chunks, the machines that cleaned them, and the waves."""
    waves = data.draw(st.lists(st.integers(1, 3), min_size=1))
    executor = Machines(
        data.draw(st.integers(1, 25)), waves, wave_limits=data.draw(st.integers(1, 2))
    )
    keys = table(documents)[:, : 3 if near else 1]
    cuts = divided(data, len(keys))
    started = [
        cleaned(executor, chunk, first, machine=data.draw(st.integers(0, 2)))
        for first, chunk in zip([0, *cuts], np.split(keys, cuts), strict=True)
    ]
    params = parameters(deduplicate=exact, near_duplicates={**NEAR_DUPLICATES, "enabled": near})
    tally = Tally()
    large = data.draw(st.booleans())
    size = HERE_BYTES + 1 if large else HERE_BYTES
    found = list(new_documents(started, params, executor, tally, size))
    unique, kept, _ = by_sets(keys, exact=exact)
    expected = [part.tolist() for part in np.split(kept, cuts)]
    assert [new.tolist() for *_, new in found] == expected
    assert [where for where, *_ in found] == [chunk.documents for chunk in started]
    assert bool(executor.starts_of("divide")) == (near or (exact and large))
    for reason, dropped in (("duplicate", ~unique), ("near_duplicate", unique & ~kept)):
        assert tally.dropped[reason] == dropped.sum()
        shown = [int(one.text) for one in tally.examples.get(reason, [])]
        assert shown == np.flatnonzero(dropped)[:EXAMPLES].tolist()


def random_keys(documents: int) -> np.ndarray:
    return RNG.integers(0, 2**64, (documents, 10), dtype=np.uint64)


def add_wave(keys: DistantKeys, executor: Machines, documents: int) -> None:
    """Judge two chunks of so many documents each, which have ten keys of their own."""
    keys.judge(keys.compare([cleaned(executor, random_keys(documents)) for _ in range(2)]))


def test_threads_hold_the_hashes_alone_in_few_runs():
    """Not what they were made of, for in threads nothing is lost."""
    executor = Machines()
    keys = DistantKeys(executor, exact=True)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(16):
        add_wave(keys, executor, documents=1000)
    for run in itertools.chain(*keys._runs):
        assert len(run) == len(executor.result(run.task))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert max(map(len, keys._runs)) <= 1 + math.log(16, MERGE_RATIO)
    assert held - before < 12 * 16 * 2 * 1000 * 10


def test_machines_divide_their_keys_and_compare_parts():
    executor = Machines(first=4 * TASKS_OF_A_PART)
    keys = DistantKeys(executor, exact=True)
    for _ in range(2):
        chunks = [cleaned(executor, random_keys(50), machine=number % 2) for number in range(4)]
        keys.judge(keys.compare(chunks))
    both = ["machine 0", "machine 1"]
    divides, compares = executor.starts_of("divide"), executor.starts_of("compare")
    assert [(one.machine, one.takes) for one in divides] == [(one, 2) for one in both] * 2
    assert [one.machine for one in compares] == both * 4
    assert [one.takes for one in compares] == [2] * 4 + [3] * 4
    assert [one.keeps for one in executor.starts_of("grown")] == [2] * 8


def test_a_wave_is_judged_while_the_next_one_is_compared():
    executor = Machines(waves=(1,), wave_limits=3)
    read = []

    def chunks() -> Iterator[CleanedChunk]:
        for number in range(8):
            read.append(number)
            yield cleaned(executor, random_keys(5))

    params = parameters(near_duplicates={**NEAR_DUPLICATES, "enabled": True})
    found = new_documents(chunks(), params, executor, Tally(), size=0)
    progress = [(len(read), len(executor.starts_of("divide"))) for _ in found]
    assert progress == [(6, 2)] * 3 + [(8, 3)] * 5


@pytest.mark.parametrize(
    ("limit", "parts"),
    [(1, FEWEST_PARTS), (10 * TASKS_OF_A_PART, 10), (10**6, MOST_PARTS)],
)
def test_the_parts_are_neither_one_nor_too_small(limit, parts):
    executor = Machines(first=limit)
    add_wave(DistantKeys(executor, exact=True), executor, documents=1)
    assert len(executor.starts_of("compare")) == parts


def test_waves_without_a_document_leave_no_runs():
    executor = Machines()
    keys = DistantKeys(executor, exact=True)
    for documents in (0, 0, 0, 5, 0, 0, 0):
        add_wave(keys, executor, documents)
    assert [one.takes for one in executor.starts_of("compare")] == [1] * 8 + [2] * 6
