"""Working ahead keeps the order, passes errors on, and never runs away."""

import threading
from collections.abc import Iterator

import pytest

from tokenmill.executor import prefetch


def test_everything_in_order() -> None:
    assert list(prefetch(range(1000))) == list(range(1000))
    assert list(prefetch([])) == []
    assert list(prefetch(prefetch(iter([None, 0])))) == [None, 0]


def test_it_works_in_another_thread_and_stays_within_depth() -> None:
    made = []
    threads = set()

    def items() -> Iterator[int]:
        for i in range(100):
            made.append(i)
            threads.add(threading.current_thread())
            yield i

    for used in prefetch(items(), depth=3):
        assert len(made) <= used + 1 + 3
    assert threading.current_thread() not in threads


def test_errors_arrive_after_what_came_before() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    stream = prefetch(items())
    assert next(stream) == 1
    with pytest.raises(ValueError, match="broken"):
        next(stream)


def test_closing_ends_the_thread() -> None:
    stream = prefetch(threading.current_thread() for _ in range(10**9))
    thread = next(stream)
    assert thread is not threading.current_thread()
    assert thread.is_alive()
    stream.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert not thread.is_alive()
