"""Near-duplicates by MinHash and locality-sensitive hashing: which documents share most of their shingles.

The similarity of two documents is the Jaccard similarity s of their sets of shingles (Broder 1997): how many they
share, divided by how many there are in both. Under a random order of all shingles, two documents have the same least
shingle with probability s. So `permutations` orders give a signature, whose numbers are divided into `bands` of `rows`;
documents that agree in a whole band count as near-duplicates, which happens with probability 1 - (1 - s^rows)^bands
(Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4). This is how Lee et al. 2022 (section 4.2)
find candidates, and what corpora of the web are commonly cleaned by.

At a threshold of 0.8 with 128 permutations (9 bands of 13 rows), of pairs that are 0.6, 0.7, 0.75, 0.8, 0.85, 0.9 and
0.95 similar, 1, 8, 19, 40, 69, 93 and 99.9 in a hundred are found.

A document is compared with the earlier ones that were kept, and with no others. So the first of several stays, and
cleaning twice is cleaning once.
"""

from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tokenmill.documents.duplicates import Hashes, SeenHashes, among, distinct
from tokenmill.documents.params import NearDuplicateParams
from tokenmill.documents.shingles import mixed, shingles

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@cache
def bands_and_rows(threshold: float, permutations: int) -> tuple[int, int]:
    """The division for which wrong answers are fewest, over all similarities alike: near-duplicates below the
    threshold, and none above it. (What datasketch chooses too, with its weights left as they are.)

    Example:
        >>> bands_and_rows(0.8, 128)
        (9, 13)
    """
    similarity = (np.arange(1000) + 0.5) / 1000
    best, fewest = (1, 1), np.inf
    for bands in range(1, permutations + 1):
        for rows in range(1, permutations // bands + 1):
            found = 1 - (1 - similarity**rows) ** bands
            wrong = float(np.where(similarity < threshold, found, 1 - found).sum())
            if wrong < fewest:
                best, fewest = (bands, rows), wrong
    return best


def signatures(texts: pl.Series, params: NearDuplicateParams) -> Hashes:
    """For each text (String, no nulls) the hashes of its bands, shape (texts, bands); each row by itself."""
    bands, rows = bands_and_rows(params.threshold, params.permutations)
    least = _least(texts, params.ngram, bands * rows).reshape(bands, rows, len(texts))
    keys = np.empty((len(texts), bands), dtype=np.uint64)
    for band, numbers in enumerate(least):
        key = np.full(len(texts), band, dtype=np.uint64)
        for row in numbers:
            key = key * _FACTOR + row
        keys[:, band] = mixed(key)
    return keys


def _least(texts: pl.Series, ngram: int, orders: int) -> NDArray[np.uint32]:
    """The least shingle of each text in each order, shape (orders, texts)."""
    least = np.full((orders, len(texts)), np.iinfo(np.uint32).max, dtype=np.uint32)
    factors, offsets = _orders(orders)
    for part in shingles(texts, ngram):
        place = np.empty_like(part.hashes)
        for order, so_far in enumerate(least[:, part.row : part.row + len(part.first)]):
            np.multiply(part.hashes, factors[order], out=place)
            place += offsets[order]
            np.minimum(so_far, np.minimum.reduceat(place, part.first), out=so_far)
    return least


def _orders(count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Factors (odd) and offsets of x -> factor * x + offset modulo 2^32, each of which puts all numbers in an order."""
    numbers = mixed(np.arange(1, count + 1, dtype=np.uint64))
    return (numbers >> np.uint64(32)).astype(np.uint32) | np.uint32(1), numbers.astype(np.uint32)


class SeenNearDuplicates:
    """The documents that were kept so far, as the hashes of their bands: 10 to 12 bytes a band.

    With 9 bands that is 90 to 108 MB for a million documents, and half as much again while runs merge.
    """

    def __init__(self) -> None:
        self._seen = SeenHashes()

    def add(self, signatures: Hashes) -> NDArray[np.bool_]:
        """Add documents in their order; False for one that is a near-duplicate of an earlier one that was kept.

        Example:
            >>> seen = SeenNearDuplicates()
            >>> seen.add(np.array([[1, 2], [3, 2], [3, 4]], dtype=np.uint64)).tolist()
            [True, False, True]
        """
        ordered, _ = distinct(signatures)
        kept = ~_with_any(signatures, ordered[self._seen.known(ordered)])
        self._compare(signatures, kept)
        self._seen.insert(distinct(signatures[kept])[0])
        return kept

    @staticmethod
    def _compare(signatures: Hashes, kept: NDArray[np.bool_]) -> None:
        """Drop from `kept` what is a near-duplicate within the batch; only rows that share a band are looked at."""
        rows = np.flatnonzero(kept)
        _, shared = distinct(signatures[rows])
        taken: set[int] = set()
        for row in rows[_with_any(signatures[rows], shared)]:
            bands = signatures[row].tolist()
            kept[row] = taken.isdisjoint(bands)
            if kept[row]:
                taken.update(bands)


def _with_any(signatures: Hashes, ordered: Hashes) -> NDArray[np.bool_]:
    """True for the rows with any of the sorted hashes."""
    return np.logical_or.reduce(among(signatures, ordered), axis=1)
