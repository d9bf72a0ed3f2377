"""Duplicates and near-duplicates among all documents read so far; the first of several stays.

A document has keys, which are 64-bit hashes: one of its text, and those of its bands
(data/minhash.py). It is an exact duplicate if an earlier document has its text, and a
near-duplicate if an earlier document that was kept has one of its bands. So cleaning a second time
drops nothing more. Two different texts among n documents share a hash with odds of about n^2 /
2^65: 3 in a million for 10^7 documents.

The keys of earlier documents are in sorted arrays. A batch becomes a sorted run; a run is merged
into the one before it while that is less than MERGE_RATIO times as long (a log-structured merge:
O'Neil et al. 1996). So there are few runs, to search and to copy. With its table of bits a run
takes 9 to 10 bytes a hash, and 16 while the longest runs merge.

Keys can be divided by their last bits. Each part is then compared with earlier keys by itself,
where these lie, and what is found is small: `divide`, `compare`, `judge` and `grown` are the steps
for a wave of documents. data/duplicates.py takes them.
"""

import itertools
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

Mask = NDArray[np.bool_]

MERGE_RATIO = 4
"""Each run is at least this many times as long as the next one."""

TABLE_BLOCK = 1 << 16
"""Hashes of a run that are entered in its table at once, so that this takes little memory."""


class Run:
    """Sorted, distinct hashes, and a table of bits that rules most others out without a search.

    A hash that is in the run has its bit set, which its first bits name. The table has 8 to 16 bits
    for each hash, so at most one in eight of the others finds its bit set, too.
    """

    def __init__(self, ordered: Hashes):
        self.ordered = ordered
        bits = len(ordered).bit_length() + 3
        self._shift = np.uint64(64 - bits)
        self._table = np.zeros(1 << (bits - 3), dtype=np.uint8)
        for start in range(0, len(ordered), TABLE_BLOCK):
            byte, bit = self._place(ordered[start : start + TABLE_BLOCK])
            np.bitwise_or.at(self._table, byte, np.uint8(1) << bit)

    def __len__(self) -> int:
        return len(self.ordered)

    def has(self, hashes: Hashes) -> Mask:
        """Whether each hash is in the run."""
        byte, bit = self._place(hashes)
        found = (self._table[byte] >> bit & 1).astype(np.bool_)
        candidates = hashes[found]
        places = np.minimum(np.searchsorted(self.ordered, candidates), len(self.ordered) - 1)
        found[found] = self.ordered[places] == candidates
        return found

    def _place(self, hashes: Hashes) -> tuple[NDArray[np.intp], NDArray[np.uint8]]:
        number = hashes >> self._shift
        return (number >> 3).astype(np.intp), (number & 7).astype(np.uint8)


AnyRun = TypeVar("AnyRun", bound=Sized)
"""A run, or what stands for one that lies elsewhere."""


def pop_short(runs: list[AnyRun], length: int) -> list[AnyRun]:
    """Take the runs from the end of the list with which a new one of this length is merged."""
    taken: list[AnyRun] = []
    while runs and len(runs[-1]) < MERGE_RATIO * length:
        taken.append(runs.pop())
        length += len(taken[-1])
    return taken


def merged(ordered: Hashes, older: Iterable[Run]) -> Run:
    """One run of sorted hashes and of older runs; all of their hashes are distinct."""
    for run in older:
        ordered = np.concatenate([run.ordered, ordered])
        ordered.sort(kind="stable")  # for two sorted runs, one merge
    return Run(ordered)


def _known(hashes: Hashes, runs: Iterable[Run]) -> Mask:
    """Whether each hash is in one of the runs."""
    found = np.zeros(len(hashes), dtype=np.bool_)
    for run in runs:
        found |= run.has(hashes)
    return found


def add_new(hashes: Hashes, runs: list[Run]) -> Mask:
    """Add a batch of hashes to runs; True where a hash comes for the first time.

    Example:
        >>> runs = []
        >>> add_new(np.array([7, 5, 7], dtype=np.uint64), runs).tolist()
        [True, True, False]
        >>> add_new(np.array([5, 6], dtype=np.uint64), runs).tolist()
        [False, True]
    """
    unique, first_rows = np.unique(hashes, return_index=True)
    new = ~_known(unique, runs)
    if new.any():
        runs.append(merged(unique[new], pop_short(runs, int(new.sum()))))
    is_first = np.zeros(len(hashes), dtype=np.bool_)
    is_first[first_rows[new]] = True
    return is_first


class Keys(NamedTuple):
    """Hashes (uint64), and the number of the document in its wave (uint32) to which each
    belongs."""

    hashes: Hashes
    rows: NDArray[np.uint32]

    def where(self, chosen: Mask | NDArray[np.intp] | slice) -> "Keys":
        """Those at these places."""
        return Keys(self.hashes[chosen], self.rows[chosen])


class Part(NamedTuple):
    """The keys of a wave, or of some of its documents, whose last bits are in one range."""

    texts: Keys
    bands: Keys


@dataclass(frozen=True)
class Division:
    """How the keys of chunks of a wave are divided."""

    parts: int
    """How many parts, at least two."""
    exact: bool
    """Whether exact duplicates are looked for, too."""
    starts: Sequence[int]
    """The number in the wave of the first document of each chunk."""


def divide(division: Division, *chunks: Hashes) -> tuple[Part, ...]:
    """Divide the keys of chunks by their last bits. Those of a chunk have the shape (documents,
    1 + bands), with the key of the text first."""
    table = np.concatenate(chunks)
    numbered = zip(division.starts, map(len, chunks), strict=True)
    rows = np.concatenate([np.arange(at, at + size, dtype=np.uint32) for at, size in numbered])
    texts = Keys(table[:, 0], rows)
    if not division.exact:
        texts = texts.where(slice(0))
    bands = Keys(table[:, 1:].ravel(), np.repeat(rows, table.shape[1] - 1))
    return tuple(map(Part, *(_divided(keys, division.parts) for keys in (texts, bands))))


def _divided(keys: Keys, parts: int) -> list[Keys]:
    # Not by the first bits, for the tables of runs spread by these
    last = keys.hashes & np.uint64(2**32 - 1)
    part = (last * np.uint64(parts) >> np.uint64(32)).astype(np.uint16)
    order = np.argsort(part, kind="stable")
    ends = np.cumsum(np.bincount(part, minlength=parts))[:-1]
    return [keys.where(places) for places in np.split(order, ends)]


@dataclass(frozen=True)
class Comparison:
    """What is found in one part of a wave."""

    duplicates: NDArray[np.uint32]
    """The documents of which an earlier one has the text."""
    near: NDArray[np.uint32]
    """The documents that have a band of a document that was kept before this wave."""
    shared: Keys
    """The bands that several documents of the wave have, and none that was kept before it."""
    distinct: int
    """How many different keys there are."""


def compare(*values: Part | Run) -> Comparison:
    """Compare the keys of one range with each other and with those of earlier documents.

    Args:
        values: parts of a wave, of which no two have a document in common, and the runs.
    """
    parts, runs = _told_apart(values)
    texts, first, known = _looked_up([part.texts for part in parts], runs)
    duplicates = texts.rows[known | ~first]
    distinct = int(first.sum())
    bands, first, known = _looked_up([part.bands for part in parts], runs)
    distinct += int(first.sum())
    several = ~known & ~(first & np.append(first[1:], True))
    near = np.unique(bands.rows[known])
    return Comparison(duplicates, near, bands.where(several), distinct)


def _told_apart(values: Sequence[Part | Run]) -> tuple[list[Part], list[Run]]:
    parts = [value for value in values if isinstance(value, Part)]
    return parts, [value for value in values if isinstance(value, Run)]


def _looked_up(keys: Sequence[Keys], runs: Sequence[Run]) -> tuple[Keys, Mask, Mask]:
    """The keys, sorted by hash and then by document; whether each is the first with its hash; and
    whether a run has it."""
    together = Keys(*map(np.concatenate, zip(*keys, strict=True)))
    together = together.where(np.lexsort((together.rows, together.hashes)))
    hashes = together.hashes
    first = np.diff(hashes, prepend=~hashes[:1]) != 0
    known = _known(hashes[first], runs)
    return together, first, known[np.cumsum(first) - 1]


@dataclass(frozen=True)
class Verdict:
    """Which documents of a wave are duplicates."""

    unique: Mask
    """Whether no earlier document has the text of each."""
    kept: Mask
    """Whether each is neither an exact nor a near-duplicate."""

    def bits(self) -> NDArray[np.uint8]:
        """Both, packed into bits, for their way to the tasks."""
        return np.packbits([self.unique, self.kept], axis=1)


def judge(count: int, comparisons: Sequence[Comparison]) -> Verdict:
    """Judge the documents of a wave, of which there are `count`, by what is found in its parts."""
    unique = np.ones(count, dtype=np.bool_)
    for found in comparisons:
        unique[found.duplicates] = False
    kept = unique.copy()
    for found in comparisons:
        kept[found.near] = False
    shared = Keys(*map(np.concatenate, zip(*(found.shared for found in comparisons), strict=True)))
    shared = shared.where(kept[shared.rows])
    hashes, rows = shared.where(np.argsort(shared.rows, kind="stable"))
    edges = np.flatnonzero(np.diff(rows, prepend=~rows[:1], append=~rows[-1:]))
    taken: set[int] = set()
    for start, end in itertools.pairwise(edges.tolist()):
        bands = hashes[start:end].tolist()
        if taken.isdisjoint(bands):
            taken.update(bands)
        else:
            kept[rows[start]] = False
    return Verdict(unique, kept)


def grown(verdict: NDArray[np.uint8], *values: Part | Run) -> Run:
    """A run of the new keys of one range, and of older runs.

    Args:
        verdict: the bits of that on the wave.
        values: the parts of the wave, and the runs with which this one is merged.
    """
    parts, older = _told_apart(values)
    unique, kept = np.unpackbits(verdict, axis=1).view(np.bool_)
    new = [part.texts.hashes[unique[part.texts.rows]] for part in parts]
    new += [part.bands.hashes[kept[part.bands.rows]] for part in parts]
    # `np.unique` would put them in a hash table first, which takes ten times as long (numpy 2.3)
    ordered = np.sort(np.concatenate(new))
    return merged(ordered[np.diff(ordered, prepend=~ordered[:1]) != 0], older)
