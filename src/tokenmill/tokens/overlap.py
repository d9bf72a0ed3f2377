"""Find what texts share with the training text, word for word, whatever white space is between the
words. So a passage is found, too, where its lines break elsewhere.

The word n-grams of the texts are looked for while the training text is read once. Each has a hash,
a polynomial of its bytes, which is the difference of two sums (Karp and Rabin 1987).
"""

from collections.abc import Iterator
from functools import reduce

import numpy as np

from tokenmill.tokens.search import MatchingSpan, Search

BASE = 0x9E3779B97F4A7C15
"""That of the polynomial; odd, so that it has an inverse among the numbers of 64 bits."""

INVERSE = pow(BASE, -1, 1 << 64)

BLOCK = 1 << 16
"""The number of tokens of the training text that are read together."""

LONGEST = 1 << 12
"""The most tokens of an n-gram of the training text, white space included. Longer ones may be
missed."""

TABLE_BITS = 22
"""The first bits of a hash, by which most n-grams are ruled out."""


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
        self._bytes, self._polynomials = _tables(search)
        self._asked = self._ngrams(np.where(search.is_special[ids], -1, ids))
        self._matches = np.concatenate([np.empty((0, 4), dtype=np.int64), *self._found()])

    @property
    def starts(self) -> np.ndarray:
        """The first token of each of these n-grams in the texts; int64."""
        hashes, starts, _ = self._asked
        return starts[np.isin(hashes, hashes[np.unique(self._matches[:, 1])])]

    def passages(self, most: int) -> list[MatchingSpan]:
        """The longest passages that consist of these n-grams. One whose words stand in the texts
        before, but not in a row, is in parts."""
        _, starts, stops = self._asked
        number, which, place, behind = self._matches.T
        # Between single words stand signs, which no n-gram has
        ends = (np.diff(number) != 1) | (np.diff(which) != 1) | (self._length == 1)
        last = np.flatnonzero(np.append(ends, True))[: len(which)]
        first = np.append(-1, last)[:-1] + 1
        runs = np.stack([first - last, which[first], which[last]], axis=1)
        found: dict[tuple[int, int], MatchingSpan] = {}
        for run in np.unique(runs, axis=0):
            less, begin, end = run.tolist()
            if len(found) == most:
                break
            if any(own <= begin and end <= other for own, other in found):
                continue
            same = (runs == run).all(axis=1)
            places = np.stack([place[first[same]], behind[last[same]]], axis=1)
            found[begin, end] = MatchingSpan(
                start=int(starts[begin]),
                stop=int(stops[end]),
                words=self._length - less,
                places=places,
                documents=np.unique(self._search.index.document_of(places[:, 0])),
            )
        return [*found.values()]

    def _found(self) -> Iterator[np.ndarray]:
        """The n-grams of the training text that the texts have: the number of each there, that of
        the first like it in the texts, its first token and the one behind its last; (matches, 4)
        int64."""
        wanted, which = np.unique(self._asked[0], return_index=True)
        is_likely = np.zeros(1 << TABLE_BITS, dtype=np.bool_)
        is_likely[wanted >> (64 - TABLE_BITS)] = True
        tokens = self._search.index.tokens
        count = 0
        for start in range(0, len(tokens), BLOCK) if len(wanted) else ():
            before = int(tokens[start - 1]) if start else None
            block = self._ngrams(tokens[start : start + BLOCK + LONGEST], before)
            own = int(np.searchsorted(block[1], BLOCK))
            likely = np.flatnonzero(is_likely[block[0][:own] >> (64 - TABLE_BITS)])
            hashes, firsts, stops = (part[likely] for part in block)
            at = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
            found = np.stack([likely + count, which[at], firsts + start, stops + start], axis=1)
            yield found[wanted[at] == hashes]
            count += own

    def _ngrams(
        self, ids: np.ndarray, before: int | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The n-gram that begins with each word of a text: its hash, uint64, its first token and
        the one behind its last, int64.

        Args:
            ids: the text.
            before: the token in front of it; None at the beginning of a text.
        """
        words = self._search.words
        starts, ends = words.bounds(ids, before)
        is_counted = words.counted(ids[starts])
        stops = ends[is_counted][self._length - 1 :]
        firsts = starts[is_counted][: len(stops)]
        widths = self._bytes[ids]
        widths[starts] += 1  # so that `to be` is not `tobe`
        at = np.append(0, np.cumsum(widths))
        sums = np.zeros(len(at), dtype=np.uint64)
        np.cumsum(self._polynomials[ids] * _powers(BASE, at[1:]), out=sums[1:])
        shifts = _powers(INVERSE, at[firsts])
        return (sums[stops] - sums[firsts]) * shifts, firsts, stops


def _powers(base: int, exponents: np.ndarray) -> np.ndarray:
    """The powers of `base` with these exponents, 1,025 added to each; uint64."""
    steps = base, pow(base, 1 << 10, 1 << 64)
    counts = 1 << 10, (exponents.max(initial=0) >> 10) + 1
    low, high = (
        np.multiply.accumulate(np.full(count, step, dtype=np.uint64))
        for count, step in zip(counts, steps, strict=True)
    )
    return low[exponents & 1023] * high[exponents >> 10]


def _tables(search: Search) -> tuple[np.ndarray, np.ndarray]:
    """The number of bytes of each token, and of -1, without white space, int64; and the polynomial
    of these, uint64. Special tokens and -1 have a byte each that is in no text."""
    special = search.tokenizer.special_ids
    spelled = [
        b"\xff" if token in special else b"" if is_blank else text.strip()
        for token, (text, is_blank) in enumerate(
            zip(search.bytes, search.words.is_blank, strict=True)
        )
    ]
    spelled[-1] = b"\xfe"
    # The last byte has the power 0, because a token is counted where it ends
    polynomials = [
        reduce(lambda sum_, byte: (sum_ * INVERSE + byte) % (1 << 64), text, 0) for text in spelled
    ]
    lengths = np.array([len(text) for text in spelled])
    return lengths, np.array(polynomials, dtype=np.uint64)
