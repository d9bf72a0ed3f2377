"""Texts as sets of hashed shingles: n words in a row, a batch at a time, without a Python object per word.

A word is a run of letters, digits and marks; case, punctuation, symbols and white space do not count. Scripts that put
no spaces between words count by character. A text of fewer than n words is one shingle,
all of its words; one without any word is one shingle too, the text as it is (its first HEAD_CHARS).

Of a word longer than WORD_BYTES its first bytes and its length count. A text longer than BLOCK_BYTES is cut there, and
the shingles across a cut are left out: some four in 100,000.

Near-duplicates by MinHash and locality-sensitive hashing: which documents share most of their shingles.

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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from tokenmill.data.dedup import Hashes, SeenHashes, among, distinct
from tokenmill.data.params import NearDuplicateParams

Numbers = NDArray[np.uint64]


BLOCK_BYTES = 1 << 19
"""UTF-8 bytes that are worked on at once: what comes of them fits into a processor's cache."""


WORD_BYTES = 32


HEAD_CHARS = 4096


_BEYOND_ASCII = (
    r"([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])"  # words by themselves
    r"|[[\p{P}\p{S}\p{Z}]--[\x00-\x7F]]"  # between words
)


_LOAD = 8
"""Bytes of a word that are loaded as one number."""


_BYTES = np.array([(1 << 8 * count) - 1 for count in range(_LOAD + 1)], dtype=np.uint64)
"""Masks for the first 0 to 8 bytes of a number."""


_ODD = np.uint64(0x9E3779B97F4A7C15)


_HALF = np.uint64(32)


@dataclass(frozen=True)
class Shingles:
    """The shingles of some texts, or of a part of one text, one after the other."""

    row: int
    """The first of the texts, as a row of the batch; a long text comes in several parts."""
    hashes: NDArray[np.uint32]
    """One per shingle."""
    first: NDArray[np.intp]
    """Where the shingles of each text begin; every text has one at least."""


def shingles(texts: pl.Series, ngram: int) -> Iterator[Shingles]:
    """The shingles of `ngram` words of all texts (String, no nulls), in their order, a block at a time."""
    ends = np.cumsum(texts.str.len_bytes().to_numpy().astype(np.intp))
    row, start = 0, 0
    while row < len(ends):
        stop = int(np.searchsorted(ends, start + BLOCK_BYTES, side="right"))
        if stop > row:
            yield _shingles(row, texts.slice(row, stop - row), ngram)
        else:
            stop = row + 1
            for part in _parts(texts.slice(row, 1)):
                yield _shingles(row, part, ngram)
        row, start = stop, int(ends[stop - 1])


def mixed(numbers: Numbers) -> Numbers:
    """Numbers spread over all 64 bits, one to one (the finaliser of SplitMix64: Steele, Lea and Flood 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _parts(text: pl.Series) -> Iterator[pl.Series]:
    """One long text in parts of whole characters."""
    data, start = text.cast(pl.Binary).item(), 0
    while start < len(data):
        part = data[start : start + BLOCK_BYTES].decode(errors="ignore")
        start += len(part.encode())
        yield pl.Series([part])


def _joined(texts: pl.Series) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """The bytes of all texts in lower case with a line break between them, and where each text begins."""
    texts = texts.str.to_lowercase()
    if (texts.str.len_bytes() != texts.str.len_chars()).any():
        texts = texts.str.replace_all(_BEYOND_ASCII, " ${1} ")
    data = texts.str.join("\n").cast(pl.Binary).item()
    length = texts.str.len_bytes().to_numpy().astype(np.intp) + 1
    return np.frombuffer(data, dtype=np.uint8), np.cumsum(length) - length


def _shingles(row: int, texts: pl.Series, ngram: int) -> Shingles:
    """The shingles of the texts of a block, which begins at `row`."""
    data, starts = _joined(texts)
    at, words = _words(data)
    begin = np.searchsorted(at, starts)
    count = np.diff(begin, append=len(words))
    # Texts of fewer words are filled up with zeros, so that each has a whole shingle.
    room = np.maximum(count, ngram)
    first = np.cumsum(room) - room
    filled = np.zeros(int(room.sum()), dtype=np.uint64)
    filled[np.arange(len(words)) + np.repeat(first - begin, count)] = words
    wordless = np.flatnonzero(count == 0)
    heads = texts.gather(wordless).str.head(HEAD_CHARS).cast(pl.Binary).to_list()
    filled[first[wordless]] = [xxhash.xxh3_64_intdigest(head) for head in heads]
    whole = np.ones(len(filled), dtype=np.bool_)
    for back in range(1, ngram):
        whole[first + room - back] = False
    hashes = _rolled(filled, ngram)[whole[: len(filled) - ngram + 1]]
    return Shingles(row, hashes, first - (ngram - 1) * np.arange(len(first)))


def _words(data: NDArray[np.uint8]) -> tuple[NDArray[np.intp], Numbers]:
    """Where each word begins, and its hash."""
    letter, digit = data - np.uint8(ord("a")) < 26, data - np.uint8(ord("0")) < 10
    inside = np.zeros(len(data) + 2, dtype=np.bool_)
    inside[1:-1] = letter | digit | (data >= 0x80)
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    start, length = edges[::2], edges[1::2] - edges[::2]
    padded = np.zeros(len(data) + WORD_BYTES, dtype=np.uint8)
    padded[: len(data)] = data
    # Eight bytes from any place, as one number.
    loads = np.ndarray(len(data) + WORD_BYTES - _LOAD + 1, dtype="<u8", buffer=padded, strides=(1,))
    words = (loads[start] & _BYTES[np.minimum(length, _LOAD)]) ^ (length.astype(np.uint64) * _ODD)
    words = _stirred(words)
    for offset in range(_LOAD, WORD_BYTES, _LOAD):
        longer = np.flatnonzero(length > offset)
        more = loads[start[longer] + offset] & _BYTES[np.minimum(length[longer] - offset, _LOAD)]
        words[longer] = _stirred(words[longer] ^ more)
    return start, words


def _stirred(numbers: Numbers) -> Numbers:
    numbers = numbers * _ODD
    return numbers ^ (numbers >> _HALF)


def _rolled(words: Numbers, ngram: int) -> NDArray[np.uint32]:
    """The hash of every `ngram` words in a row: a polynomial in their hashes, stirred."""
    count = len(words) - ngram + 1
    rolled = words[:count].copy()
    for offset in range(1, ngram):
        rolled *= _ODD
        rolled += words[offset : offset + count]
    return (mixed(rolled) >> _HALF).astype(np.uint32)


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
