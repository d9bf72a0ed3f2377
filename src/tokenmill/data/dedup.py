"""Which 64-bit hashes came before: sorted runs of numbers behind a filter that answers most questions alone.

Runs of like size are merged (a log-structured merge), as long as the result is a small part of all. The filter is a
Bloom filter of one 64-bit word and three bits a hash (blocked: Putze, Sanders and Singler 2007): where it says no, the
hash is new; where it says perhaps (for about 1 in a hundred of the new ones), the runs are searched.

10 to 12 bytes a hash, and up to 4 more for moments. Hashes are taken to be spread evenly; others cost time, never a
wrong answer. Two different texts among n documents share a hash with odds of about n^2 / 2^65: 3 in a million for
10^7 documents, 3 in a hundred for 10^9 (`collision_odds`).
"""

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


RUN_HASHES = 1 << 22
"""Hashes in a run that is still merged, however few there are in all."""


RUN_PART = 8
"""A merged run holds at most this part of all hashes, or RUN_HASHES if that is more: merging takes a copy."""


MERGED_RUNS = 4
"""Runs of like size that become one."""


def collision_odds(documents: int) -> float:
    """The odds that any two different texts among so many share a hash, so that one is lost.

    Example:
        >>> f"{collision_odds(10**7):.0e}"
        '3e-06'
    """
    return documents**2 / 2**65


def among(hashes: Hashes, ordered: Hashes) -> NDArray[np.bool_]:
    """True where a hash, in whatever shape they come, is one of the sorted ones."""
    if not len(ordered):
        return np.zeros(hashes.shape, dtype=np.bool_)
    return ordered[np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)] == hashes


def distinct(hashes: Hashes) -> tuple[Hashes, Hashes]:
    """The different hashes in order, and those of them that come more than once."""
    ordered = np.sort(hashes, axis=None)
    repeats = ordered[1:] == ordered[:-1]
    if not repeats.any():
        return ordered, ordered[:0]
    return ordered[np.concatenate([[True], ~repeats])], np.unique(ordered[1:][repeats])


class SeenHashes:
    """A set of 64-bit hashes that answers for whole batches."""

    def __init__(self) -> None:
        self._runs: list[Hashes] = []
        self._filter = _Filter(1 << 16)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Add a batch; True where a hash came for the first time.

        Example:
            >>> seen = SeenHashes()
            >>> seen.add(np.array([7, 5, 7], dtype=np.uint64)).tolist()
            [True, True, False]
            >>> seen.add(np.array([5, 6], dtype=np.uint64)).tolist()
            [False, True]
        """
        unique, repeated = distinct(hashes)
        known = self.known(unique)
        is_first = ~among(hashes, unique[known])
        if len(repeated):
            rows = np.flatnonzero(is_first & among(hashes, repeated))
            is_first[rows] = False
            is_first[rows[np.unique(hashes[rows], return_index=True)[1]]] = True
        self.insert(unique[~known])
        return is_first

    def known(self, ordered: Hashes) -> NDArray[np.bool_]:
        """True where one of the sorted, different hashes was added before."""
        known = self._filter.perhaps(ordered)
        asked = ordered[known]
        found = np.zeros(len(asked), dtype=np.bool_)
        for run in self._runs:
            found |= among(asked, run)
        known[known] = found
        return known

    def insert(self, ordered: Hashes) -> None:
        """Add sorted, different hashes, none of which was added before."""
        if not len(ordered):
            return
        self._count += len(ordered)
        self._runs.append(ordered)
        while (last := self._mergeable()) > 1:
            merged = np.concatenate(self._runs[-last:])
            del self._runs[-last:]
            merged.sort(kind="stable")
            self._runs.append(merged)
        if self._count <= self._filter.capacity:
            self._filter.put(ordered)
            return
        self._filter = _Filter(self._count)
        for run in self._runs:
            self._filter.put(run)

    def _mergeable(self) -> int:
        """How many of the last runs should become one."""
        last = self._runs[-MERGED_RUNS:]
        alike = len(last) == MERGED_RUNS and len(last[0]) <= MERGED_RUNS * len(last[-1])
        small = sum(map(len, last)) <= max(RUN_HASHES, self._count // RUN_PART)
        return len(last) if alike and small else 1


class _Filter:
    """A Bloom filter of 64-bit words, with room for four hashes in each on the average."""

    def __init__(self, hashes: int) -> None:
        bits = max(1, (hashes // 4).bit_length())
        self.capacity = 4 << bits
        self._words = np.zeros(1 << bits, dtype=np.uint64)
        self._shift = np.uint64(64 - bits)

    def perhaps(self, hashes: Hashes) -> NDArray[np.bool_]:
        """False where a hash was surely not put."""
        bits = _three_bits(hashes)
        return self._words[hashes >> self._shift] & bits == bits

    def put(self, ordered: Hashes) -> None:
        """Set the bits of sorted hashes, a part at a time."""
        for part in np.array_split(ordered, len(ordered) // (1 << 20) + 1):
            word = part >> self._shift
            first = np.flatnonzero(np.concatenate([[True], word[1:] != word[:-1]]))
            self._words[word[first]] |= np.bitwise_or.reduceat(_three_bits(part), first)


def _three_bits(hashes: Hashes) -> Hashes:
    one, six, mask = np.uint64(1), np.uint64(6), np.uint64(63)
    return (one << (hashes & mask)) | (one << (hashes >> six & mask)) | (one << (hashes >> np.uint64(12) & mask))
