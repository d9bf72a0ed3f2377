"""Random choices that are the same on every machine and in every Python version.

Python promises a stable sequence only for `Random.random()`, so everything here is built on that method.
Lists in this package are ordered from common to rare: `common_first` draws their first items most often,
which gives facts of different frequency, and so something to learn early and something to learn late.
"""

import bisect
import functools
import itertools
import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def below(rng: random.Random, limit: int) -> int:
    """A whole number from 0 to `limit` - 1, all equally likely."""
    return int(rng.random() * limit)


def uniform(rng: random.Random, items: Sequence[Item]) -> Item:
    """One of `items`, all equally likely."""
    return items[below(rng, len(items))]


def weighted(rng: random.Random, items: Sequence[Item], weights: tuple[int, ...]) -> Item:
    """One of `items`, as likely as its weight says."""
    sums = _running_sums(weights)
    return items[bisect.bisect_right(sums, below(rng, sums[-1]))]


def common_first(rng: random.Random, items: Sequence[Item]) -> Item:
    """One of `items`: the first is five times as likely as the last."""
    return weighted(rng, items, falling(len(items)))


@functools.cache
def falling(size: int) -> tuple[int, ...]:
    """Weights that fall with the square of the distance from the end, from 15 to 3.

    Example:
        >>> falling(4)
        (15, 8, 4, 3)
    """
    steps = max(1, size - 1)
    return tuple(3 + 12 * (steps - place) ** 2 // steps**2 for place in range(size))


@functools.cache
def _running_sums(weights: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(itertools.accumulate(weights))
