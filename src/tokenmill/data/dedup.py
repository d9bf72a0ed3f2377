"""Exact duplicates: the 64-bit hashes of the documents so far, in sorted arrays.

A batch becomes a sorted run; a run is merged into the one before it while that is less than MERGE_RATIO times as long
(a log-structured merge: O'Neil et al. 1996). So there are few runs, to search and to copy. That is 8 bytes a hash, and
twice that while the longest runs merge. Two different texts among n documents share a hash with odds of about
n^2 / 2^65: 3 in a million for 10^7 documents, 3 in a hundred for 10^9 (`collision_odds`).
"""

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

MERGE_RATIO = 4
"""How many times as long as the next run each run is at least."""


class SeenHashes:
    """A set of 64-bit hashes that answers for whole batches."""

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Add a batch; True where a hash comes for the first time.

        Example:
            >>> seen = SeenHashes()
            >>> seen.add(np.array([7, 5, 7], dtype=np.uint64)).tolist()
            [True, True, False]
            >>> seen.add(np.array([5, 6], dtype=np.uint64)).tolist()
            [False, True]
        """
        unique, first_rows = np.unique(hashes, return_index=True)
        new = ~self.known(unique)
        self.insert(unique[new])
        is_first = np.zeros(len(hashes), dtype=np.bool_)
        is_first[first_rows[new]] = True
        return is_first

    def known(self, ordered: Hashes) -> NDArray[np.bool_]:
        """True where one of the sorted, different hashes was added before."""
        found = np.zeros(len(ordered), dtype=np.bool_)
        for run in self._runs:
            found |= among(ordered, run)
        return found

    def insert(self, ordered: Hashes) -> None:
        """Add sorted, different hashes, none of which was added before."""
        if not len(ordered):
            return
        self._runs.append(ordered)
        while len(self._runs) > 1 and len(self._runs[-2]) < MERGE_RATIO * len(self._runs[-1]):
            merged = np.concatenate(self._runs[-2:])
            del self._runs[-2:]
            merged.sort(kind="stable")  # for two sorted runs, one merge
            self._runs.append(merged)


def among(hashes: Hashes, ordered: Hashes) -> NDArray[np.bool_]:
    """True where a hash, in an array of any shape, is one of the sorted ones."""
    if not len(ordered):
        return np.zeros(hashes.shape, dtype=np.bool_)
    return ordered[np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)] == hashes


def collision_odds(documents: int) -> float:
    """The odds that any two different texts among `documents` share a hash, so that one of them is lost.

    Example:
        >>> f"{collision_odds(10**7):.0e}"
        '3e-06'
    """
    return documents**2 / 2**65
