"""Work in one thread on what comes next while another uses what is there."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")

_END = object()


def ahead(items: Iterable[Item], depth: int = 2) -> Iterator[Item]:
    """Yield `items` in their order, computed in a thread of its own at most `depth` items ahead.

    It pays where the work releases the interpreter's lock: reading, encoding, compressing. An exception in
    `items` is raised here; closing the generator ends the thread after the item it is at.
    """
    iterator = iter(items)
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        waiting = deque(pool.submit(next, iterator, _END) for _ in range(depth))
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(pool.submit(next, iterator, _END))
            yield item  # pyright: ignore[reportReturnType]  (the sentinel is gone)
            del item
    finally:
        pool.shutdown(cancel_futures=True)
