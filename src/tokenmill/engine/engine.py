"""What a data stage may ask of whatever runs its work: a function over items, in order."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """Runs a function over items; which engine it is changes how fast, never what comes out."""

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield `function(item)` for every item, in the order of the items.

        `items` is read in the caller's thread, no further ahead than a bounded number of items under way, so that
        memory is bounded. What `function` or `items` raises is raised as itself, after the results of the items
        before it. Closing the iterator cancels what has not begun.

        `function`, items and results must be picklable, and `function` the same in every process: an engine may run it
        on another machine, and again where one died.
        """
        ...
