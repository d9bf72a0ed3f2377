"""Random choices, the same with every version of Python: that is promised for `Random.random()` alone."""

import bisect
import functools
import itertools
import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Draw:
    """A sequence of random choices; the same seed always gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, limit: int) -> int:
        """A whole number from 0 to `limit` - 1, all equally likely."""
        return int(self._random() * limit)

    def weighted(self, items: Sequence[Item], weights: tuple[int, ...]) -> Item:
        """One of `items`, as likely as its weight says."""
        sums = _running_sums(weights)
        return items[bisect.bisect_right(sums, self.below(sums[-1]))]

    def common_first(self, items: Sequence[Item]) -> Item:
        """One of `items`, which go from common to rare: the first is five times as likely as the last."""
        return self.weighted(items, falling(len(items)))


@functools.cache
def falling(size: int) -> tuple[int, ...]:
    """Weights that fall with the square of the distance from the end, from 15 to 3: `falling(4)` is (15, 8, 4, 3)."""
    steps = max(1, size - 1)
    return tuple(3 + 12 * (steps - place) ** 2 // steps**2 for place in range(size))


@functools.cache
def _running_sums(weights: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(itertools.accumulate(weights))
