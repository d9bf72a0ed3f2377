"""Repetition within a document, by the rules of Gopher (Rae et al. 2021, appendix A, table A1).

A document of T characters is dropped if

- repeated paragraphs, or repeated lines, are more than 0.30 of all, or hold more than 0.20 T characters;
- the most frequent n-gram of words takes more than 0.20 T (n = 2), 0.18 T (3) or 0.16 T (4) characters;
- repeated n-grams take more than 0.15 T (n = 5), 0.14 T (6) … 0.10 T (10) characters, none counted twice.

The paper leaves open how n-grams are counted; here it is as in datatrove, which made FineWeb. The most frequent one
counts with the spaces between its words, times its number; of several equally frequent ones, the first. Repeated ones
are found from left to right: each counts with the characters of its words, and the search continues behind it. Unlike
in datatrove, an n-gram that occurs once is no repetition, however short the text.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from tokenmill.data.params import FilterParams
from tokenmill.data.text_spans import Groups, TextSpans, paragraphs

MAX_REPEATED_SPANS = 0.30

MAX_REPEATED_SPAN_CHARS = 0.20

MAX_TOP = {2: 0.20, 3: 0.18, 4: 0.16}

MAX_DUPLICATE = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}


def repeated_spans(frame: pl.DataFrame, _params: FilterParams) -> Mapping[str, np.ndarray]:
    """Which documents (columns `text`, `lines`) repeat paragraphs or lines too often."""
    chars = np.maximum(frame["text"].str.len_chars().to_numpy(), 1)
    return {
        "repeated_paragraphs": _repeats_too_much(TextSpans.of(paragraphs(frame["text"])), chars),
        "repeated_lines": _repeats_too_much(TextSpans.of(frame["lines"]), chars),
    }


def _repeats_too_much(spans: TextSpans, chars: np.ndarray) -> np.ndarray:
    repeats = spans.repeats
    fraction = spans.sums(repeats) / np.maximum(spans.counts, 1)
    return (fraction > MAX_REPEATED_SPANS) | (spans.sums(repeats * spans.chars) / chars > MAX_REPEATED_SPAN_CHARS)


def repeated_ngrams(frame: pl.DataFrame, _params: FilterParams) -> Mapping[str, np.ndarray]:
    """Which documents (columns `text`, `words`) repeat n-grams of words too much."""
    chars = np.maximum(frame["text"].str.len_chars().to_numpy(), 1)
    top, duplicate = np.zeros(len(frame), bool), np.zeros(len(frame), bool)
    grams = NGrams(TextSpans.of(frame["words"]))
    for n in range(2, max(MAX_DUPLICATE) + 1):
        groups = grams.extend()
        if n in MAX_TOP:
            top |= grams.top_chars(groups) / chars > MAX_TOP[n]
        else:
            duplicate |= grams.duplicate_fraction(groups, chars, MAX_DUPLICATE[n]) > MAX_DUPLICATE[n]
        grams.keep(groups, ~(top | duplicate))
    return {"top_ngrams": top, "duplicate_ngrams": duplicate}


_BASE = np.uint64(0xD6E8FEB86659FD93)
"""Odd; an n-gram's hash is multiplied by it before the next word's is added."""


class NGrams:
    """The n-grams of a batch that may occur more than once in their document, with n growing by one at a time.

    An n-gram can only occur twice if both (n-1)-grams in it do, so after one sort of all pairs of words few are left.
    """

    def __init__(self, words: TextSpans) -> None:
        self.n = 1
        self.places = np.arange(len(words.text))
        """The first word of each n-gram, ascending."""
        self._keys = words.keys
        self._words = words
        self._ends = np.concatenate([[0], np.cumsum(words.chars, dtype=np.int64)])

    def extend(self) -> Groups:
        """Extend every n-gram by the next word of its document, if there is one, and group the equal ones."""
        document = self._words.document[self.places]
        follows = np.flatnonzero((np.diff(self.places) == 1) & (document[1:] == document[:-1]))
        self.places = self.places[follows]
        self._keys = self._keys[follows] * _BASE + self._words.hashes[self.places + self.n]
        self.n += 1
        return Groups(self._keys)

    def keep(self, groups: Groups, documents: np.ndarray) -> None:
        """Keep the n-grams that occur more than once, in the documents (D, bool) that still pass."""
        kept = np.sort(groups.members)
        kept = kept[documents[self._words.document[self.places[kept]]]]
        self.places, self._keys = self.places[kept], self._keys[kept]

    def top_chars(self, groups: Groups) -> np.ndarray:
        """Characters that the most frequent n-gram takes in each document (D)."""
        place = self.places[groups.first]
        document = self._words.document[place]
        order = np.lexsort((-place, groups.counts, document))
        last = order[np.diff(document[order], append=-1) != 0]
        length = self._ends[place[last] + self.n] - self._ends[place[last]] + self.n - 1
        taken = np.zeros(len(self._words.counts), np.int64)
        taken[document[last]] = length * groups.counts[last]
        return taken

    def duplicate_fraction(self, groups: Groups, chars: np.ndarray, limit: float) -> np.ndarray:
        """The fraction of each document's characters (`chars`, D) in repeated n-grams; exact where it exceeds `limit`.

        The words that repeated n-grams cover hold at least as many characters, so only documents in which these exceed
        the limit are searched from left to right.
        """
        place = self.places[groups.repeats]
        end = np.minimum(place + self.n, np.append(place[1:], len(self._ends)))
        document = self._words.document[place]
        fraction = np.bincount(document, self._ends[end] - self._ends[place], len(chars)) / chars
        unsure = np.flatnonzero(fraction > limit)
        if len(unsure):
            fraction[unsure] = self._from_left_to_right(groups, unsure) / chars[unsure]
        return fraction

    def _from_left_to_right(self, groups: Groups, documents: np.ndarray) -> np.ndarray:
        """The characters of repeated n-grams, none twice, in the documents with these numbers (ascending)."""
        group = np.empty(len(self.places), np.int64)
        group[groups.members] = np.repeat(np.arange(len(groups.counts)), groups.counts)
        members = np.sort(groups.members)
        place = self.places[members]
        taken = []
        for document in documents:
            begin, end = np.searchsorted(place, self._words.offsets[document : document + 2])
            found, after, chars = set(), 0, 0
            for here, name in zip(place[begin:end].tolist(), group[members[begin:end]].tolist(), strict=True):
                if here < after:
                    continue
                if name in found:
                    after = here + self.n
                    chars += int(self._ends[after] - self._ends[here])
                found.add(name)
            taken.append(chars)
        return np.array(taken)
