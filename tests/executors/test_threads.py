"""Threads give what a plain loop gives: the same results and errors in the same order, only so much
at a time."""

import itertools
import os
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.core.errors import UserError
from tokenmill.executors import threads
from tokenmill.executors.base import Task
from tokenmill.executors.threads import WAITING, ThreadExecutor

THREADS = st.integers(1, 5)


def outcome(results: Iterator) -> tuple[list, str]:
    """What comes before the end, and the end."""
    before = []
    try:
        before.extend(results)
    except UserError as error:
        return before, str(error)
    return before, "done"


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("150000 100000\n", 2), ("20000 100000\n", 1), ("900000 100000\n", 3), ("max 100000\n", 3)],
)
def test_threads_are_as_many_as_cores_may_be_used(tmp_path, monkeypatch, quota, cores) -> None:
    """Each holds text in memory, and a container sees all cores of its machine."""
    monkeypatch.setattr(os, "cpu_count", lambda: 96)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5, 9}, raising=False)
    monkeypatch.setattr(threads, "CPU_MAX", tmp_path / "cpu.max")
    assert ThreadExecutor().limit() == 3 + WAITING
    (tmp_path / "cpu.max").write_text(quota)
    assert ThreadExecutor().limit() == cores + WAITING


@given(
    threads=THREADS,
    waits=st.lists(st.sampled_from([0.0, 0.001, 0.003]), max_size=12),
    bad=st.sets(st.integers(0, 12)),
    broken_after=st.none() | st.integers(0, 12),
)
def test_results_and_errors_are_those_of_a_loop(threads: int, waits, bad, broken_after) -> None:
    def function(item: tuple[int, float]) -> int:
        number, wait = item
        time.sleep(wait)
        if number in bad:
            raise UserError(f"item {number}")
        return number

    def items() -> Iterator[tuple[int, float]]:
        for number, wait in enumerate(waits):
            if number == broken_after:
                raise UserError(f"source at {number}")
            yield number, wait

    expected = outcome(map(function, items()))
    assert outcome(ThreadExecutor(threads=threads).map(function, items())) == expected


@given(threads=THREADS, taken=st.integers(0, 10))
def test_items_are_read_in_the_caller_and_bounded(threads: int, taken: int) -> None:
    readers = []
    done = []

    def items() -> Iterator[int]:
        for number in itertools.count():
            readers.append(threading.current_thread())
            yield number

    results = ThreadExecutor(threads=threads).map(done.append, items())
    for number, _ in enumerate(itertools.islice(results, taken)):
        assert len(readers) == number + threads + WAITING
    before = len(readers)
    results.close()
    assert set(readers) <= {threading.current_thread()}
    assert len(done) <= len(readers) == before


def test_a_caller_may_bound_what_is_under_way() -> None:
    executor = ThreadExecutor(threads=3)
    started = []

    def tasks() -> Iterator[tuple[Task, ...]]:
        for number in itertools.count():
            started.append(number)
            yield executor.start(abs, number)

    results = executor.in_order(tasks(), lambda: 2)
    for number, (task,) in enumerate(itertools.islice(results, 5)):
        assert executor.result(task) == number
        assert len(started) == number + 2
    results.close()


def test_all_threads_work() -> None:
    together = threading.Barrier(3)
    assert (
        list(ThreadExecutor(threads=3).map(lambda _: together.wait(timeout=60) >= 0, range(6)))
        == [True] * 6
    )


def test_closing_cancels_waiting_items_and_ends_threads() -> None:
    begun: list[int] = []
    threads = set[threading.Thread]()
    go = threading.Event()

    def function(item: int) -> int:
        begun.append(item)
        threads.add(threading.current_thread())
        return item if item == 0 else go.wait(timeout=60)

    with ThreadExecutor(threads=1) as executor:
        results = executor.map(function, range(100))
        assert next(results) == 0
        threading.Timer(0.1, go.set).start()
        results.close()
        assert go.is_set() or begun == [0], "what has begun has ended"
        assert len(begun) <= 2
    assert begun in ([0], [0, 1])
    assert threads
    assert not any(thread.is_alive() for thread in threads)


def test_a_panic_is_raised_as_itself() -> None:
    class PanicError(BaseException):
        """As a panic in Rust arrives in Python."""

    def function(_: int) -> int:
        raise PanicError

    with pytest.raises(PanicError):
        list(ThreadExecutor(threads=2).map(function, range(3)))


def test_values_go_from_task_to_task() -> None:
    """A task gets the values of earlier ones, and the caller only those that it asks for."""
    executor = ThreadExecutor(threads=2)
    few, many = executor.start(lambda n: (n, list(range(n))), 5, values=2)
    (total,) = executor.start(lambda start, one, other: start + sum(one + other), 1, many, many)
    assert (executor.result(few), executor.result(total)) == (5, 21)
    (failed,) = executor.start(lambda number, _: 1 / number, 0, total)
    (after,) = executor.start(lambda value: value, failed)
    with pytest.raises(ZeroDivisionError):
        executor.result(after)
