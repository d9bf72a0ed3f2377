"""Documents divided into words, lines or paragraphs, of a whole batch end to end in one column.

A word is a run of letters, marks and numbers, with an apostrophe before it if there is one (`don`, `'t`); a run of
anything else but white space is a word of symbols. That is close to the tokens of spaCy for English, which datatrove
counts. In scripts without spaces between words, a run up to the next symbol is one word.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

SPOKEN = r"[\p{L}\p{M}\p{N}]"
"""What words are made of that are not symbols."""

_WORD = rf"['’]?{SPOKEN}+|['’]|[^\p{{L}}\p{{M}}\p{{N}}\s'’]+"

_SALT = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio, odd: its multiples differ in all 64 bits."""


def words(texts: pl.Series) -> pl.Series:
    """The words of each text, as lists."""
    return texts.str.extract_all(_WORD)


def lines(texts: pl.Series) -> pl.Series:
    """The lines of each text that are not blank, as lists."""
    return _not_blank(texts.str.split("\n"))


def paragraphs(texts: pl.Series) -> pl.Series:
    """The text between blank lines in each text, as lists."""
    return _not_blank(texts.str.split("\n\n").list.eval(pl.element().str.strip_chars("\n")))


def _not_blank(lists: pl.Series) -> pl.Series:
    return lists.list.eval(pl.element().filter(pl.element().str.contains(r"\S")))


@dataclass(frozen=True)
class TextSpans:
    """Spans of D documents: document d has those from `offsets[d]` up to `offsets[d + 1]`."""

    text: pl.Series
    offsets: np.ndarray
    """int64, D + 1."""

    @classmethod
    def of(cls, lists: pl.Series) -> "TextSpans":
        """A List(String) column, end to end."""
        counts = lists.list.len().to_numpy()
        return cls(lists.explode(empty_as_null=False), np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]))

    @property
    def counts(self) -> np.ndarray:
        """Spans of each document (D)."""
        return np.diff(self.offsets)

    @cached_property
    def document(self) -> np.ndarray:
        """The number of each span's document."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.counts)

    @cached_property
    def chars(self) -> np.ndarray:
        """Characters of each span."""
        return self.text.str.len_chars().to_numpy()

    @cached_property
    def hashes(self) -> np.ndarray:
        """64 bits for each span: equal texts have equal hashes, unequal ones only once in 2^64 pairs."""
        return self.text.hash().to_numpy()

    @property
    def keys(self) -> np.ndarray:
        """64 bits for each span that depend on its document, too."""
        return self.hashes ^ (self.document.astype(np.uint64) * _SALT)

    @property
    def repeats(self) -> np.ndarray:
        """Whether each span occurs earlier in its document."""
        return Groups(self.keys).repeats

    def sums(self, values: np.ndarray | pl.Series) -> np.ndarray:
        """The sum of the values (one per span) over each document (D)."""
        total = np.concatenate([[0], np.cumsum(np.asarray(values), dtype=np.int64)])
        return total[self.offsets[1:]] - total[self.offsets[:-1]]


class Groups:
    """The places of keys that occur more than once, group after group."""

    def __init__(self, keys: np.ndarray) -> None:
        order = np.argsort(keys)
        ordered = keys[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))[: len(keys)]
        counts = np.diff(starts, append=len(keys))
        several = counts > 1
        self.members = order[np.repeat(several, counts)]
        """The places of all keys of all groups."""
        self.counts = counts[several]
        """Members of each group."""
        starts = np.cumsum(self.counts) - self.counts
        self.first = np.minimum.reduceat(self.members, starts) if len(starts) else self.members
        """The leftmost place of each group."""
        self._len = len(keys)

    @property
    def repeats(self) -> np.ndarray:
        """For each key, whether it occurs further left, too."""
        repeats = np.zeros(self._len, bool)
        repeats[self.members] = True
        repeats[self.first] = False
        return repeats
