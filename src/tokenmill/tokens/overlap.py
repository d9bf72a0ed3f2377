"""Find what texts share with the training text, word for word, whatever white space is between the
words. So a passage is found, too, where its lines break elsewhere.

The training text is read once, a block at a time, and the hash of each of its n-grams is looked up
among those of the texts. The hash is that of Karp and Rabin (1987). A text is the row of bytes b
that is left without white space, with a zero before each word. With the sums
S(k) = sum over j < k of b(j) BASE^j modulo 2^64, the bytes from i up to k have the hash
(S(k) - S(i)) BASE^-i, wherever they stand.
"""

from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

import numpy as np

from tokenmill.tokens.search import MatchingSpan, Search

BASE = 0x9E3779B97F4A7C15
"""The base of the hash; odd, so that it has an inverse modulo 2^64."""

INVERSE = pow(BASE, -1, 1 << 64)

BLOCK = 1 << 16
"""The number of tokens of the training text whose n-grams are looked up together."""

LONGEST = 1 << 12
"""The number of tokens that are read beyond a block, to the ends of its last n-grams. Longer ones,
white space included, may be missed."""

TABLE_BITS = 22
"""The first bits of a hash, by which most n-grams are ruled out."""


class _Ngrams(NamedTuple):
    """The n-grams of a text, in the order of the words with which they begin: the hash of each,
    uint64, its first token and the one behind its last, int64."""

    hashes: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


class Overlap:
    """The n-grams of some texts that stand in the training text: n words in a row, with the signs
    between them. Signs are no words."""

    def __init__(self, search: Search, ids: np.ndarray, words: int) -> None:
        """Read the training text.

        Args:
            search: the index.
            ids: the texts, with special tokens between them.
            words: the number of words of an n-gram.
        """
        self._search = search
        self._length = words
        self._widths, self._polynomials = _tables(search)
        self._asked = self._ngrams(np.where(search.is_special[ids], -1, ids))
        self._matches = np.concatenate([np.empty((0, 4), dtype=np.int64), *self._read()])

    @property
    def starts(self) -> np.ndarray:
        """The first token of each of these n-grams in the texts; int64."""
        hashes, starts, _ = self._asked
        return starts[np.isin(hashes, hashes[self._matches[:, 1]])]

    def passages(self, most: int) -> list[MatchingSpan]:
        """The longest passages that consist of these n-grams. One whose words stand in the texts
        before, but not in a row, is in parts."""
        number, which, place, behind = self._matches.T
        # N-grams that follow each other, here and there, are one run; but of single words not, for
        # nothing tells which signs stand between them
        breaks = (np.diff(number) != 1) | (np.diff(which) != 1) | (self._length == 1)
        last = np.flatnonzero(np.append(breaks, True))[: len(which)]
        first = np.append(-1, last)[:-1] + 1
        runs = np.stack([first - last, which[first], which[last]], axis=1)
        found: dict[tuple[int, int], MatchingSpan] = {}
        for run in np.unique(runs, axis=0):  # from the longest to the shortest
            fewer, begin, end = run.tolist()
            if len(found) == most:
                break
            if any(longer[0] <= begin and end <= longer[1] for longer in found):
                continue
            same = (runs == run).all(axis=1)
            places = np.stack([place[first[same]], behind[last[same]]], axis=1)
            found[begin, end] = MatchingSpan(
                start=int(self._asked.starts[begin]),
                stop=int(self._asked.stops[end]),
                words=self._length - fewer,
                places=places,
                documents=np.unique(self._search.index.document_of(places[:, 0])),
            )
        return [*found.values()]

    def _read(self) -> Iterator[np.ndarray]:
        """Find the n-grams of the training text that are also in the texts. Yield four numbers of
        each: its own in the training text, that of the first like it in the texts, and in the
        training text its first token and the one behind its last; (matches, 4) int64."""
        wanted, which = np.unique(self._asked.hashes, return_index=True)
        is_likely = np.zeros(1 << TABLE_BITS, dtype=np.bool_)
        is_likely[wanted >> (64 - TABLE_BITS)] = True
        tokens = self._search.index.tokens
        before = 0  # n-grams in earlier blocks
        for start in range(0, len(tokens), BLOCK) if len(wanted) else ():
            some = tokens[start : start + BLOCK + LONGEST]
            ngrams = self._ngrams(some, int(tokens[start - 1]) if start else None)
            count = int(np.searchsorted(ngrams.starts, BLOCK))
            likely = np.flatnonzero(is_likely[ngrams.hashes[:count] >> (64 - TABLE_BITS)])
            hashes, starts, stops = (column[likely] for column in ngrams)
            at = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
            found = np.stack([likely + before, which[at], starts + start, stops + start], axis=1)
            yield found[wanted[at] == hashes]
            before += count

    def _ngrams(self, ids: np.ndarray, before: int | None = None) -> _Ngrams:
        """The n-grams of a text; `before` is the token in front of it, None at its beginning."""
        words = self._search.words
        firsts, ends = words.bounds(ids, before)
        is_counted = words.counted(ids[firsts])
        stops = ends[is_counted][self._length - 1 :]
        starts = firsts[is_counted][: len(stops)]
        widths = self._widths[ids]
        widths[firsts] += 1  # the zero, by which `to be` is not `tobe`
        at = np.append(0, np.cumsum(widths))
        sums = np.zeros(len(at), dtype=np.uint64)
        np.cumsum(self._polynomials[ids] * _powers(BASE, at[1:]), out=sums[1:])
        hashes = (sums[stops] - sums[starts]) * _powers(INVERSE, at[starts])
        return _Ngrams(hashes, starts, stops)


def _powers(base: int, exponents: np.ndarray) -> np.ndarray:
    """The powers of `base` with these exponents, 1,025 added to each; uint64. That cancels out
    between BASE and INVERSE."""
    steps = base, pow(base, 1 << 10, 1 << 64)
    counts = 1 << 10, (exponents.max(initial=0) >> 10) + 1
    low, high = (
        np.multiply.accumulate(np.full(count, step, dtype=np.uint64))
        for count, step in zip(counts, steps, strict=True)
    )
    return low[exponents & 1023] * high[exponents >> 10]


def _tables(search: Search) -> tuple[np.ndarray, np.ndarray]:
    """The number of bytes of each token, and of -1, without white space, int64; and what these add
    to a sum, uint64, as if BASE had the power 0 at the last one. Special tokens and -1 have a byte
    each that is in no text."""
    special = search.tokenizer.special_ids
    texts = zip(search.bytes, search.words.is_blank, strict=True)
    spelled = [
        b"\xff" if token in special else b"" if is_blank else text.strip()
        for token, (text, is_blank) in enumerate(texts)
    ]
    spelled[-1] = b"\xfe"
    polynomials = [
        reduce(lambda sum_, byte: (sum_ * INVERSE + byte) % (1 << 64), text, 0) for text in spelled
    ]
    lengths = np.array([len(text) for text in spelled])
    return lengths, np.array(polynomials, dtype=np.uint64)
