"""Of several rules that a document may break, the first.

Documents taken apart: their words, lines and paragraphs, end to end in one column.

A word is a run of letters, marks and numbers, with an apostrophe before it if there is one (`don`, `'t`); a run of
anything else but white space is a word too, of symbols. That is close to the tokens of spaCy for English, which
datatrove counts. In scripts that put no spaces between words, a run up to the next symbol is one word.

Repetition within a document, by the rules of Gopher (Rae et al. 2021, appendix A, table A1).

For a document of T characters:

- repeated paragraphs, and likewise lines: those that stood before in it are more than 0.30 of all, or hold more than
  0.20 T characters;
- the most frequent n-gram of words takes more than 0.20 T (n = 2), 0.18 T (3) or 0.16 T (4) characters;
- n-grams that stood before take more than 0.15 T (n = 5), 0.14 T (6) … 0.10 T (10) characters, none counted twice.

The paper leaves open how n-grams are counted; here it is as in datatrove, which made FineWeb. The most frequent one
counts with the spaces between its words, times its number; of several equally frequent ones, the first. Duplicates are
found from left to right: one that stood before counts with the characters of its words, and the search goes on behind
it. Unlike there, an n-gram that stands once is no repetition, however short the text.

An n-gram can only stand twice if both (n-1)-grams in it do. So one sort of all pairs of words leaves little to do.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl


def first(rules: dict[str, pl.Series], rows: int) -> pl.Series:
    """The name of the first rule whose column (bool) is true, for each of the rows; null where none is."""
    if not rules:
        return pl.repeat(None, rows, dtype=pl.String, eager=True)
    broken = pl.DataFrame(rules)
    return broken.select(pl.coalesce(pl.when(pl.col(name)).then(pl.lit(name)) for name in rules)).to_series()


SPOKEN = r"[\p{L}\p{M}\p{N}]"
"""What words are made of that are not symbols."""


_WORD = rf"['’]?{SPOKEN}+|['’]|[^\p{{L}}\p{{M}}\p{{N}}\s'’]+"


_SALT = np.uint64(0x9E3779B97F4A7C15)
"""An odd number (2^64 over the golden ratio): multiples of it differ in all 64 bits."""


@dataclass(frozen=True)
class Parts:
    """Parts of D documents: document d has those from `offsets[d]` up to `offsets[d + 1]`."""

    text: pl.Series
    offsets: np.ndarray
    """int64, D + 1."""

    @classmethod
    def of(cls, lists: pl.Series) -> "Parts":
        """A List(String) column, end to end."""
        counts = lists.list.len().to_numpy()
        return cls(lists.explode(empty_as_null=False), np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]))

    @property
    def counts(self) -> np.ndarray:
        """Parts of each document (D)."""
        return np.diff(self.offsets)

    @cached_property
    def document(self) -> np.ndarray:
        """The number of each part's document."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.counts)

    @cached_property
    def chars(self) -> np.ndarray:
        """Characters of each part."""
        return self.text.str.len_chars().to_numpy()

    @cached_property
    def hashes(self) -> np.ndarray:
        """64 bits for each part: equal texts have equal hashes, unequal ones but once in 2^64 pairs."""
        return self.text.hash().to_numpy()

    @property
    def keys(self) -> np.ndarray:
        """64 bits for each part that also tell its document."""
        return self.hashes ^ (self.document.astype(np.uint64) * _SALT)

    def sums(self, values: np.ndarray | pl.Series) -> np.ndarray:
        """The sum of the values (one a part) over each document (D)."""
        total = np.concatenate([[0], np.cumsum(np.asarray(values), dtype=np.int64)])
        return total[self.offsets[1:]] - total[self.offsets[:-1]]


def words(texts: pl.Series) -> pl.Series:
    """The words of each text, as lists."""
    return texts.str.extract_all(_WORD)


def lines(texts: pl.Series) -> pl.Series:
    """The lines of each text that are not blank, as lists."""
    return _not_blank(texts.str.split("\n"))


def paragraphs(texts: pl.Series) -> pl.Series:
    """What stands between blank lines in each text, as lists."""
    return _not_blank(texts.str.split("\n\n").list.eval(pl.element().str.strip_chars("\n")))


def _not_blank(lists: pl.Series) -> pl.Series:
    return lists.list.eval(pl.element().filter(pl.element().str.contains(r"\S")))


MAX_REPEATED_PARTS = 0.30


MAX_REPEATED_PART_CHARS = 0.20


MAX_TOP = {2: 0.20, 3: 0.18, 4: 0.16}


MAX_DUPLICATE = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}


_BASE = np.uint64(0xD6E8FEB86659FD93)
"""Odd; what the hash of an n-gram is multiplied by before the next word's is added."""


def repeated_parts(frame: pl.DataFrame) -> pl.Series:
    """Why a document (columns `text`, `lines`) repeats paragraphs or lines too often; null if it does not."""
    chars = frame["text"].str.len_chars()
    kinds = {"repeated_paragraphs": paragraphs(frame["text"]), "repeated_lines": frame["lines"]}
    return first({reason: _too_often(Parts.of(parts), chars) for reason, parts in kinds.items()}, len(frame))


def _too_often(parts: Parts, chars: pl.Series) -> pl.Series:
    repeats = seen_before(parts.keys)
    fraction = parts.sums(repeats) / np.maximum(parts.counts, 1)
    char_fraction = parts.sums(repeats * parts.chars) / np.maximum(chars.to_numpy(), 1)
    return pl.Series((fraction > MAX_REPEATED_PARTS) | (char_fraction > MAX_REPEATED_PART_CHARS))


def seen_before(keys: np.ndarray) -> np.ndarray:
    """Whether each key stands further left too."""
    groups = Groups(keys)
    seen = np.zeros(len(keys), bool)
    seen[groups.members] = True
    seen[groups.first] = False
    return seen


class Groups:
    """Keys that occur more than once: their places, group after group."""

    def __init__(self, keys: np.ndarray) -> None:
        order = np.argsort(keys)
        ordered = keys[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))[: len(keys)]
        counts = np.diff(starts, append=len(keys))
        several = counts > 1
        self.members = order[np.repeat(several, counts)]
        """Places of all keys of all groups."""
        self.counts = counts[several]
        """Members of each group."""
        starts = np.cumsum(self.counts) - self.counts
        self.first = np.minimum.reduceat(self.members, starts) if len(starts) else self.members
        """The leftmost place of each group."""


def repeated_ngrams(frame: pl.DataFrame) -> pl.Series:
    """Why a document (columns `text`, `words`) repeats n-grams of words too much; null if it does not."""
    words = Parts.of(frame["words"])
    total = np.maximum(frame["text"].str.len_chars().to_numpy(), 1)
    top, duplicate = np.zeros(len(frame), bool), np.zeros(len(frame), bool)
    grams = NGrams(words)
    for n in range(2, max(MAX_DUPLICATE) + 1):
        groups = grams.longer()
        if n in MAX_TOP:
            top |= grams.top_chars(groups) / total > MAX_TOP[n]
        else:
            duplicate |= grams.duplicate_fraction(groups, total, MAX_DUPLICATE[n]) > MAX_DUPLICATE[n]
        grams.keep(groups, ~(top | duplicate))
    return first({"top_ngrams": pl.Series(top), "duplicate_ngrams": pl.Series(duplicate)}, len(frame))


class NGrams:
    """The n-grams of a batch that may stand more than once in their document, n growing by one at a time."""

    def __init__(self, words: Parts) -> None:
        self.n = 1
        self.places = np.arange(len(words.text))
        """The first word of each n-gram, ascending."""
        self._keys = words.keys
        self._words = words
        self._ends = np.concatenate([[0], np.cumsum(words.chars, dtype=np.int64)])

    def longer(self) -> Groups:
        """Let every n-gram take in the next one's last word, where there is one in the document; group the equal."""
        document = self._words.document[self.places]
        follows = np.flatnonzero((np.diff(self.places) == 1) & (document[1:] == document[:-1]))
        self.places = self.places[follows]
        self._keys = self._keys[follows] * _BASE + self._words.hashes[self.places + self.n]
        self.n += 1
        return Groups(self._keys)

    def keep(self, groups: Groups, documents: np.ndarray) -> None:
        """Go on with the n-grams that stand more than once, in the documents (D, bool) that still pass."""
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

    def duplicate_fraction(self, groups: Groups, total: np.ndarray, limit: float) -> np.ndarray:
        """The part of each document's characters (total, D) in n-grams that stood before; no less, up to `limit`.

        All words that any such n-gram covers are as many or more, so only documents where these are beyond the limit
        are searched from left to right.
        """
        seen = np.zeros(len(self.places), bool)
        seen[groups.members] = True
        seen[groups.first] = False
        place = self.places[seen]
        end = np.minimum(place + self.n, np.append(place[1:], len(self._ends)))
        document = self._words.document[place]
        fraction = np.bincount(document, self._ends[end] - self._ends[place], len(total)) / total
        unsure = np.flatnonzero(fraction > limit)
        if len(unsure):
            fraction[unsure] = self._from_left_to_right(groups, unsure) / total[unsure]
        return fraction

    def _from_left_to_right(self, groups: Groups, documents: np.ndarray) -> np.ndarray:
        """The characters of duplicates, none twice, in the documents with these numbers (ascending)."""
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
