"""Repetition within a document, by the rules of Gopher (Rae et al. 2021, appendix A, table A1).

Documents are divided into words, lines or paragraphs, a whole batch end to end in one column. A
word is a run of letters, marks and numbers with the joiners between them, and with an apostrophe
before it if there is one (`don`, `'t`); a run of anything else but white space is a word of
symbols. That is close to the tokens of spaCy for English, which datatrove counts. In scripts
without spaces between words, a run up to the next symbol is one word.

A document of T characters is dropped if

- repeated paragraphs, or repeated lines, are more than 0.30 of all, or hold more than 0.20 T
  characters;
- the most frequent n-gram of words takes more than 0.20 T (n = 2), 0.18 T (3) or 0.16 T (4)
  characters;
- repeated n-grams take more than 0.15 T (n = 5), 0.14 T (6) … 0.10 T (10) characters, none counted
  twice.

The paper leaves open how n-grams are counted; here it is as in datatrove, which made FineWeb. The
most frequent n-gram counts with the spaces between its words, times its number; of several equally
frequent ones, the first. Repeated n-grams are found from left to right: each counts with the
characters of its words, and the search continues after it. Unlike in datatrove, an n-gram that
occurs once is no repetition, however short the text.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl
# Functions below import polars when they are called, as in filters.py.

SPOKEN = r"[\p{L}\p{M}\p{N}]"
"""The class of the characters in words that are not symbols."""

JOINERS = r"[\x{200C}\x{200D}]"
"""The class of the characters that only join those, which some scripts spell."""

_WORD = rf"['’]?{SPOKEN}+(?:{JOINERS}+{SPOKEN}+)*|['’]|[^\p{{L}}\p{{M}}\p{{N}}\s'’]+"

_SALT = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: an odd factor whose multiples differ in all 64 bits."""


def words_of(texts: "pl.Series") -> "pl.Series":
    """The words of each text, as lists."""
    return texts.str.extract_all(_WORD)


def lines_of(texts: "pl.Series") -> "pl.Series":
    """The lines of each text that are not blank, as lists."""
    return _not_blank(texts.str.split("\n"))


def paragraphs_of(texts: "pl.Series") -> "pl.Series":
    """The texts between blank lines in each text, as lists."""
    import polars as pl  # noqa: PLC0415 (see above)

    return _not_blank(texts.str.split("\n\n").list.eval(pl.element().str.strip_chars("\n")))


def _not_blank(lists: "pl.Series") -> "pl.Series":
    import polars as pl  # noqa: PLC0415 (see above)

    return lists.list.eval(pl.element().filter(pl.element().str.contains(r"\S")))


@dataclass(frozen=True)
class TextSpans:
    """Spans of D documents, end to end. Document d has the spans from `offsets[d]` up to
    `offsets[d + 1]`."""

    text: "pl.Series"
    offsets: np.ndarray
    """The offsets of the documents, (D + 1,) int64."""

    @classmethod
    def of(cls, lists: "pl.Series") -> "TextSpans":
        """Take the spans of a List(String) column, end to end."""
        counts = lists.list.len().to_numpy()
        return cls(
            lists.explode(empty_as_null=False),
            np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
        )

    @property
    def counts(self) -> np.ndarray:
        """The number of spans of each document, (D,)."""
        return np.diff(self.offsets)

    @cached_property
    def document(self) -> np.ndarray:
        """The number of each span's document."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.counts)

    @cached_property
    def chars(self) -> np.ndarray:
        """The number of characters of each span."""
        return self.text.str.len_chars().to_numpy()

    @cached_property
    def hashes(self) -> np.ndarray:
        """A 64-bit hash of each span. Two different texts have equal hashes with odds of 1 in
        2^64."""
        return self.text.hash().to_numpy()

    @property
    def keys(self) -> np.ndarray:
        """A 64-bit hash of each span together with its document."""
        return self.hashes ^ (self.document.astype(np.uint64) * _SALT)

    @property
    def repeats(self) -> np.ndarray:
        """Whether each span occurs earlier in its document."""
        return Groups(self.keys).repeats

    def sums(self, values: "np.ndarray | pl.Series") -> np.ndarray:
        """The sum of the values (one per span) over each document, (D,)."""
        total = np.concatenate([[0], np.cumsum(np.asarray(values), dtype=np.int64)])
        return total[self.offsets[1:]] - total[self.offsets[:-1]]


class Groups:
    """The places of keys that occur more than once, one group of equal keys after the other."""

    def __init__(self, keys: np.ndarray) -> None:
        order = np.argsort(keys)
        ordered = keys[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))[: len(keys)]
        counts = np.diff(starts, append=len(keys))
        several = counts > 1
        self.members = order[np.repeat(several, counts)]
        """The places of the keys of all groups."""
        self.counts = counts[several]
        """The number of members of each group."""
        starts = np.cumsum(self.counts) - self.counts
        self.first = np.minimum.reduceat(self.members, starts) if len(starts) else self.members
        """The leftmost place of each group."""
        self.repeats = np.zeros(len(keys), bool)
        """For each key, whether an equal one is further left."""
        self.repeats[self.members] = True
        self.repeats[self.first] = False


MAX_TOP = {2: 0.20, 3: 0.18, 4: 0.16}
MAX_DUPLICATE = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}


def repeated_spans(frame: "pl.DataFrame") -> dict[str, np.ndarray]:
    """Whether each document (columns `text`, `lines`) repeats paragraphs or lines too often."""
    chars = np.maximum(frame["text"].str.len_chars().to_numpy(), 1)
    return {
        "repeated_paragraphs": _repeats_too_much(TextSpans.of(paragraphs_of(frame["text"])), chars),
        "repeated_lines": _repeats_too_much(TextSpans.of(frame["lines"]), chars),
    }


def _repeats_too_much(spans: TextSpans, chars: np.ndarray) -> np.ndarray:
    repeats = spans.repeats
    fraction = spans.sums(repeats) / np.maximum(spans.counts, 1)
    return (fraction > 0.30) | (spans.sums(repeats * spans.chars) / chars > 0.20)


def repeated_ngrams(frame: "pl.DataFrame") -> dict[str, np.ndarray]:
    """Whether each document (columns `text`, `words`) repeats n-grams of words too much."""
    chars = np.maximum(frame["text"].str.len_chars().to_numpy(), 1)
    top = np.zeros(len(frame), bool)
    duplicate = np.zeros(len(frame), bool)
    grams = NGrams(TextSpans.of(frame["words"]))
    for n in range(2, max(MAX_DUPLICATE) + 1):
        groups = grams.extend()
        if n in MAX_TOP:
            top |= grams.top_chars(groups) / chars > MAX_TOP[n]
        else:
            limit = MAX_DUPLICATE[n]
            duplicate |= grams.duplicate_fraction(groups, chars, limit) > limit
        grams.keep(groups, ~(top | duplicate))
    return {"top_ngrams": top, "duplicate_ngrams": duplicate}


_BASE = np.uint64(0xD6E8FEB86659FD93)
"""An odd factor. An n-gram's hash is multiplied by it before the next word's hash is added."""


class NGrams:
    """The n-grams of a batch that may occur more than once in their document, with n growing by one
    at a time.

    An n-gram can only occur twice if both (n-1)-grams in it do, so after one sort of all pairs of
    words few are left.
    """

    def __init__(self, words: TextSpans) -> None:
        self.n = 1
        self.places = np.arange(len(words.text))
        """The index of the first word of each n-gram, ascending."""
        self._keys = words.keys
        self._words = words
        self._ends = np.concatenate([[0], np.cumsum(words.chars, dtype=np.int64)])

    def extend(self) -> Groups:
        """Extend every n-gram by the next word of its document, if there is one, and group the
        equal ones."""
        document = self._words.document[self.places]
        follows = np.flatnonzero((np.diff(self.places) == 1) & (document[1:] == document[:-1]))
        self.places = self.places[follows]
        self._keys = self._keys[follows] * _BASE + self._words.hashes[self.places + self.n]
        self.n += 1
        return Groups(self._keys)

    def keep(self, groups: Groups, documents: np.ndarray) -> None:
        """Keep the n-grams that occur at least twice in a document for which `documents` (D, bool)
        is true."""
        kept = np.sort(groups.members)
        kept = kept[documents[self._words.document[self.places[kept]]]]
        self.places = self.places[kept]
        self._keys = self._keys[kept]

    def top_chars(self, groups: Groups) -> np.ndarray:
        """The number of characters that the most frequent n-gram takes in each document, (D,)."""
        place = self.places[groups.first]
        document = self._words.document[place]
        order = np.lexsort((-place, groups.counts, document))
        last = order[np.diff(document[order], append=-1) != 0]
        length = self._ends[place[last] + self.n] - self._ends[place[last]] + self.n - 1
        taken = np.zeros(len(self._words.counts), np.int64)
        taken[document[last]] = length * groups.counts[last]
        return taken

    def duplicate_fraction(self, groups: Groups, chars: np.ndarray, limit: float) -> np.ndarray:
        """The fraction of each document's characters (`chars`, D) in repeated n-grams. It is exact
        where it exceeds `limit`.

        The words that repeated n-grams cover hold at least as many characters. So only documents in
        which these words exceed the limit are searched from left to right.
        """
        place = self.places[groups.repeats]
        end = np.minimum(place + self.n, np.append(place[1:], len(self._ends)))
        document = self._words.document[place]
        fraction = np.bincount(document, self._ends[end] - self._ends[place], len(chars)) / chars
        for unsure in np.flatnonzero(fraction > limit).tolist():
            fraction[unsure] = self._from_left_to_right(unsure) / chars[unsure]
        return fraction

    def _from_left_to_right(self, document: int) -> int:
        """The number of characters of the repeated n-grams of a document, none counted twice."""
        begin, end = np.searchsorted(self.places, self._words.offsets[document : document + 2])
        found = set[int]()
        after = 0
        chars = 0
        for here, key in zip(
            self.places[begin:end].tolist(), self._keys[begin:end].tolist(), strict=True
        ):
            if here < after:
                continue
            if key in found:
                after = here + self.n
                chars += int(self._ends[after] - self._ends[here])
            found.add(key)
        return chars
