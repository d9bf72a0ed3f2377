"""MinHash signatures, by which near-duplicates are found.

Near-duplicates share most of their shingles; MinHash and locality-sensitive hashing find them. The
similarity s of two documents is the Jaccard similarity of their sets of shingles, n words in a row
(Broder 1997). Under a random order of all shingles, two documents have the same least shingle with
probability s. The least shingles in `permutations` orders are divided into `bands` of `rows`;
documents that agree in a whole band count as near-duplicates, with probability 1 - (1 -
s^rows)^bands (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4; Lee et al.
2022, section 4.2).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from tokenmill.data.dedup import Hashes
from tokenmill.data.params import NearDuplicateParams

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: odd, so that multiplying by it loses nothing."""


@cache
def bands_and_rows(threshold: float, permutations: int) -> tuple[int, int]:
    """The numbers of bands and rows with the fewest errors over all similarities. An error is a
    pair above the threshold that is not found, or a pair below it that is.

    datasketch chooses the same one with its default weights.

    Example:
        >>> bands_and_rows(0.8, 128)
        (9, 13)
    """
    similarity = (np.arange(1000) + 0.5) / 1000
    best = (1, 1)
    fewest = np.inf
    for bands in range(1, permutations + 1):
        for rows in range(1, permutations // bands + 1):
            found = 1 - (1 - similarity**rows) ** bands
            wrong = float(np.where(similarity < threshold, found, 1 - found).sum())
            if wrong < fewest:
                best = (bands, rows)
                fewest = wrong
    return best


def signatures(texts: pl.Series, params: NearDuplicateParams) -> Hashes:
    """The hashes of the bands of each text (String, no nulls), shape (texts, bands). Each row
    depends on its text only."""
    bands, rows = bands_and_rows(params.threshold, params.permutations)
    least = least_shingles(texts, params.ngram, bands * rows).reshape(bands, rows, len(texts))
    keys = np.empty((len(texts), bands), dtype=np.uint64)
    for band, numbers in enumerate(least):
        key = np.full(len(texts), band, dtype=np.uint64)
        for row in numbers:
            key = key * _GOLDEN + row
        keys[:, band] = _splitmix(key)
    return keys


def least_shingles(texts: pl.Series, ngram: int, orders: int) -> NDArray[np.uint32]:
    """The least shingle of each text in each random order, shape (orders, texts)."""
    least = np.full((orders, len(texts)), np.iinfo(np.uint32).max, dtype=np.uint32)
    # An order is x -> factor * x + offset modulo 2^32, with an odd factor
    numbers = _splitmix(np.arange(1, orders + 1, dtype=np.uint64))
    factors = (numbers >> _HALF).astype(np.uint32) | np.uint32(1)
    offsets = numbers.astype(np.uint32)
    for block in shingles(texts, ngram):
        place = np.empty_like(block.hashes)
        for order, so_far in enumerate(least[:, block.row : block.row + len(block.first)]):
            np.multiply(block.hashes, factors[order], out=place)
            place += offsets[order]
            np.minimum(so_far, np.minimum.reduceat(place, block.first), out=so_far)
    return least


def _splitmix(numbers: Hashes) -> Hashes:
    """Spread numbers over all 64 bits, one to one (the finaliser of SplitMix64: Steele, Lea and
    Flood 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


# ---- Shingles: a batch at a time, without a Python object for each word.
#
# A word is a run of letters, digits and marks; case, punctuation, symbols and white space do not
# count. Scripts without spaces between words count by character. A text of fewer than n words is
# one shingle, all of its words; a text without any word is one shingle too, its first HEAD_CHARS
# characters. Of a word longer than WORD_BYTES, its first bytes and its length count. A text longer
# than BLOCK_BYTES is cut there, and the shingles across a cut are left out: about four in 100,000.

BLOCK_BYTES = 1 << 19
"""UTF-8 bytes that are processed at once. The arrays of a block fit into a processor's cache."""

WORD_BYTES = 32
HEAD_CHARS = 4096

_BEYOND_ASCII = (
    r"([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])"  # words by themselves
    r"|[[\p{P}\p{S}\p{Z}]--[\x00-\x7F]]"  # between words
)


_BYTE_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)
"""Masks for the first 0 to 8 bytes of a number."""

_HALF = np.uint64(32)


@dataclass(frozen=True)
class Shingles:
    """The shingles of a block of texts, one text after the other."""

    row: int
    """The row of the first text in the batch; a long text comes in several blocks."""
    hashes: NDArray[np.uint32]
    """The hash of each shingle."""
    first: NDArray[np.intp]
    """The index of each text's first shingle; every text has at least one."""


def shingles(texts: pl.Series, ngram: int) -> Iterator[Shingles]:
    """The shingles of `ngram` words of all texts (String, no nulls), in order, by blocks."""
    ends = np.cumsum(texts.str.len_bytes().to_numpy().astype(np.intp))
    row = 0
    start = 0
    while row < len(ends):
        stop = int(np.searchsorted(ends, start + BLOCK_BYTES, side="right"))
        if stop > row:
            yield _block_shingles(row, texts.slice(row, stop - row), ngram)
        else:
            stop = row + 1
            for block in _cut(texts.slice(row, 1)):
                yield _block_shingles(row, block, ngram)
        row = stop
        start = int(ends[stop - 1])


def _cut(text: pl.Series) -> Iterator[pl.Series]:
    data = text.cast(pl.Binary).item()
    start = 0
    while start < len(data):
        block = data[start : start + BLOCK_BYTES].decode(errors="ignore")
        start += len(block.encode())
        yield pl.Series([block])


def _block_shingles(row: int, texts: pl.Series, ngram: int) -> Shingles:
    data, starts = _joined(texts)
    word_starts, words = _words(data)
    begin = np.searchsorted(word_starts, starts)
    count = np.diff(begin, append=len(words))
    # Texts of fewer than `ngram` words are padded with zeros, so that each has a whole shingle.
    room = np.maximum(count, ngram)
    first = np.cumsum(room) - room
    padded = np.zeros(int(room.sum()), dtype=np.uint64)
    padded[np.arange(len(words)) + np.repeat(first - begin, count)] = words
    wordless = np.flatnonzero(count == 0)
    heads = texts.gather(wordless).str.head(HEAD_CHARS).cast(pl.Binary).to_list()
    padded[first[wordless]] = [xxhash.xxh3_64_intdigest(head) for head in heads]
    within_text = np.ones(len(padded), dtype=np.bool_)
    for back in range(1, ngram):
        within_text[first + room - back] = False
    hashes = _ngram_hashes(padded, ngram)[within_text[: len(padded) - ngram + 1]]
    return Shingles(row, hashes, first - (ngram - 1) * np.arange(len(first)))


def _joined(texts: pl.Series) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """The bytes of all texts in lower case with a line break between them, and the offset at which
    each text begins."""
    texts = texts.str.to_lowercase()
    if (texts.str.len_bytes() != texts.str.len_chars()).any():
        texts = texts.str.replace_all(_BEYOND_ASCII, " ${1} ")
    data = texts.str.join("\n").cast(pl.Binary).item()
    length = texts.str.len_bytes().to_numpy().astype(np.intp) + 1
    return np.frombuffer(data, dtype=np.uint8), np.cumsum(length) - length


def _words(data: NDArray[np.uint8]) -> tuple[NDArray[np.intp], Hashes]:
    letter = data - np.uint8(ord("a")) < 26
    digit = data - np.uint8(ord("0")) < 10
    inside = np.zeros(len(data) + 2, dtype=np.bool_)
    inside[1:-1] = letter | digit | (data >= 0x80)
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    start = edges[::2]
    length = edges[1::2] - edges[::2]
    padded = np.zeros(len(data) + WORD_BYTES, dtype=np.uint8)
    padded[: len(data)] = data
    # Eight bytes from any place, as one number.
    loads = np.ndarray(len(data) + WORD_BYTES - 7, dtype="<u8", buffer=padded, strides=(1,))
    salts = length.astype(np.uint64) * _GOLDEN
    words = _multiply_and_fold((loads[start] & _BYTE_MASKS[np.minimum(length, 8)]) ^ salts)
    for offset in range(8, WORD_BYTES, 8):
        longer = np.flatnonzero(length > offset)
        more = loads[start[longer] + offset] & _BYTE_MASKS[np.minimum(length[longer] - offset, 8)]
        words[longer] = _multiply_and_fold(words[longer] ^ more)
    return start, words


def _multiply_and_fold(numbers: Hashes) -> Hashes:
    numbers = numbers * _GOLDEN
    return numbers ^ (numbers >> _HALF)


def _ngram_hashes(words: Hashes, ngram: int) -> NDArray[np.uint32]:
    """The hash of every `ngram` consecutive words: a polynomial in the hashes of the words,
    mixed."""
    count = len(words) - ngram + 1
    rolled = words[:count].copy()
    for offset in range(1, ngram):
        rolled *= _GOLDEN
        rolled += words[offset : offset + count]
    return (_splitmix(rolled) >> _HALF).astype(np.uint32)
