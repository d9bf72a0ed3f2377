"""Texts as sets of hashed shingles: n words in a row, a batch at a time, without a Python object per word.

A word is a run of letters, digits and marks; case, punctuation, symbols and white space do not count. Scripts that put
no spaces between words count by character. A text of fewer than n words is one shingle,
all of its words; one without any word is one shingle too, the text as it is (its first HEAD_CHARS).

Of a word longer than WORD_BYTES its first bytes and its length count. A text longer than BLOCK_BYTES is cut there, and
the shingles across a cut are left out: some four in 100,000.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

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
