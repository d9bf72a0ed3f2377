"""Which 64-bit hashes came before: sorted runs of numbers, merged when they grow alike (a log-structured merge).

8 bytes a document, 16 while the largest runs merge. Two different texts among n documents share a hash with
odds of about n^2 / 2^65: 3 in a million for 10^7 documents, 3 in a hundred for 10^9 (`collision_odds`).
"""

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


def collision_odds(documents: int) -> float:
    """The odds that any two different texts among so many share a hash, so that one is lost.

    Example:
        >>> f"{collision_odds(10**7):.0e}"
        '3e-06'
    """
    return documents**2 / 2**65


class SeenHashes:
    """A set of 64-bit hashes that answers for whole batches."""

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def add(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Add a batch; True where a hash came for the first time.

        Example:
            >>> seen = SeenHashes()
            >>> seen.add(np.array([7, 5, 7], dtype=np.uint64)).tolist()
            [True, True, False]
            >>> seen.add(np.array([5, 6], dtype=np.uint64)).tolist()
            [False, True]
        """
        unique, first = np.unique(hashes, return_index=True)
        new = np.ones(len(unique), dtype=np.bool_)
        for run in self._runs:
            place = np.minimum(np.searchsorted(run, unique), len(run) - 1)
            new &= run[place] != unique
        is_first = np.zeros(len(hashes), dtype=np.bool_)
        is_first[first[new]] = True
        self._keep(unique[new])
        return is_first

    def _keep(self, run: Hashes) -> None:
        if not len(run):
            return
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            run.sort(kind="stable")
        self._runs.append(run)
