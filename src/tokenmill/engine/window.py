"""Keep a bounded number of items under way, and hand out their results in the order of the items."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Handle = TypeVar("Handle")
Result = TypeVar("Result")


def in_order(
    items: Iterable[Item],
    *,
    start: Callable[[Item], Handle],
    finish: Callable[[Handle], Result],
    cancel: Callable[[Handle], object],
    room: Callable[[], int],
) -> Iterator[Result]:
    """Yield `finish(start(item))` for every item, with at most `room()` items started and not yet yielded.

    What `items`, `start` or `finish` raises comes after the results of the items before it. When the iterator ends
    early, what is still under way goes to `cancel`.
    """
    source, more, trouble = iter(items), True, None
    waiting: deque[Handle] = deque()
    try:
        while more or waiting:
            if more and len(waiting) < room():
                try:
                    waiting.append(start(next(source)))
                except StopIteration:
                    more = False
                except Exception as error:
                    more, trouble = False, error
            else:
                yield finish(waiting.popleft())
        if trouble is not None:
            raise trouble
    finally:
        for handle in waiting:
            cancel(handle)
