"""Threads of this process: for work that releases the interpreter's lock, as polars and the encoders do."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from tokenmill.engine.window import in_order

Item = TypeVar("Item")
Result = TypeVar("Result")


class LocalEngine:
    """An `Engine` of `threads` threads.

    While the caller is at a result, each thread is at an item and one more waits: threads + 2 under way in all.
    """

    def __init__(self, *, threads: int):
        self._threads = threads

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """See `Engine.map`; ending early waits for the items that a thread is at."""
        with ThreadPoolExecutor(self._threads) as pool:
            yield from in_order(
                items,
                start=partial(pool.submit, function),
                finish=Future[Result].result,
                cancel=Future[Result].cancel,
                room=lambda: self._threads + 2,
            )
