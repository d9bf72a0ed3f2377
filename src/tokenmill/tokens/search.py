"""Find in the training text the longest phrases of another text: where an answer comes from.

The method is that of OLMoTrace (Liu et al. 2025, section 3): the maximal spans of a text, those
that stand in the training text word for word and cannot be made longer, found by suffix arrays. A
span consists of whole words, and counts where whole words stand.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokenmill.formats.token_index import TokenIndex
from tokenmill.formats.tokenizer import TextTokenizer, token_bytes
from tokenmill.tokens.words import Words

COMPARED = 8
"""The number of tokens of a phrase that are compared at a time. Most differ within them."""

BLOCK = 1 << 16
"""The number of places that are looked at together."""


@dataclass(frozen=True)
class MatchingSpan:
    """A part of a text that stands in the training text, and that no word can be added to."""

    start: int
    """Its first token in the text."""
    stop: int
    """The token behind its last one."""
    words: int
    """The number of its words; signs are none."""
    places: np.ndarray
    """Where it stands in the training text: its first token there and the one behind its last;
    (places, 2) int64, in the order of the text."""
    documents: np.ndarray
    """The numbers of the documents in which it stands, ascending; int64."""

    @property
    def count(self) -> int:
        """How often it stands in the training text."""
        return len(self.places)


@dataclass(frozen=True)
class Phrases:
    """Beginnings of a text to search for: parts of it, each after some tokens of its own."""

    ids: np.ndarray
    """The text, and -1 at its end; (tokens + 1,) int64."""
    heads: np.ndarray
    """The own tokens of each phrase, filled up with -1; (phrases, longest) int64."""
    head_lengths: np.ndarray
    """The number of own tokens of each; (phrases,) int64."""
    tails: np.ndarray
    """The token of the text that follows them; (phrases,) int64."""
    lengths: np.ndarray
    """The number of tokens of each; (phrases,) int64."""

    def __getitem__(self, which: np.ndarray) -> "Phrases":
        """The phrases of these numbers."""
        return Phrases(
            self.ids,
            self.heads[which],
            self.head_lengths[which],
            self.tails[which],
            self.lengths[which],
        )

    def of_length(self, lengths: np.ndarray) -> "Phrases":
        """Their first `lengths` tokens."""
        return replace(self, lengths=lengths)

    def tokens(self, first: int, stop: int) -> np.ndarray:
        """Their tokens from `first` to `stop`, with any id behind their ends; (phrases, stop -
        first) int64."""
        columns = np.arange(first, stop)
        at = self.tails[:, None] + columns - self.head_lengths[:, None]
        found = self.ids[np.clip(at, 0, len(self.ids) - 1)]
        own = min(max(self.heads.shape[1] - first, 0), stop - first)
        is_own = columns[:own] < self.head_lengths[:, None]
        found[:, :own] = np.where(is_own, self.heads[:, first : first + own], found[:, :own])
        return found


class Search:
    """Searches one index.

    Example:
        >>> search = Search(open_index(Path("data/index"), Path("data/tokens")), tokenizer)
        >>> search.spans(tokenizer.encode("The capital of France is Paris."), min_words=4)
    """

    def __init__(self, index: TokenIndex, tokenizer: TextTokenizer) -> None:
        self.index = index
        self.tokenizer = tokenizer
        self.words = Words.of(tokenizer)
        self.is_special = np.isin(np.arange(tokenizer.vocab_size + 1), [*tokenizer.special_ids])
        """Whether each id, and -1, is a special token; bool."""
        self._bytes = [*token_bytes(tokenizer), b""]
        self.chars = np.array([sum(byte & 0xC0 != 0x80 for byte in one) for one in self._bytes])
        """The number of characters that begin in each token, and in -1; int64."""

    def spans(self, ids: Sequence[int], *, min_words: int) -> list[MatchingSpan]:
        """The maximal spans of `min_words` words or more, in the order of the text.

        Args:
            ids: the tokens of a text; -1, or a special one, is in no span.
            min_words: the fewest words of a span; signs are none.
        """
        text = _Query.of(self, np.array(ids, dtype=np.int64))
        reach = text.reach(self)
        known: dict[int, MatchingSpan] = {}
        while True:
            enough = text.words_to(reach) >= min_words
            furthest = np.maximum.accumulate(np.concatenate([[0], reach]))[:-1]
            wanted = np.flatnonzero(enough & (reach > furthest))
            unknown = [number for number in wanted.tolist() if number not in known]
            if not unknown:
                return [known[number] for number in wanted.tolist()]
            for number, places in zip(unknown, text.places(self, unknown, reach), strict=True):
                if len(places):
                    known[number] = self._span(text, number, int(reach[number]), places)
                else:  # these tokens stand in the training text only with half a word after them
                    reach[number] = text.end_before(int(reach[number]), number)

    def _span(self, text: "_Query", number: int, stop: int, places: np.ndarray) -> MatchingSpan:
        return MatchingSpan(
            start=int(text.starts[number]),
            stop=stop,
            words=int(text.words_to(np.array([stop]), np.array([number]))[0]),
            places=places[places[:, 0].argsort()],
            documents=np.unique(self.index.document_of(places[:, 0])),
        )

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of these tokens; what is no whole character at its ends is left out."""
        return b"".join(self._bytes[token] for token in ids).decode("utf-8", "ignore")

    def first_words(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> list[list[int]]:
        """For each word from `starts` to `ends`, its tokens in the other way of writing it: with a
        space before it, or without. Empty where there is no other."""
        spelled = [
            b"".join(self._bytes[token] for token in ids[start:end])
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        texts = [word.decode("utf-8", "ignore") for word in spelled]
        is_whole = [text.encode() == word for text, word in zip(texts, spelled, strict=True)]
        others = [text[1:] if text[:1] == " " else f" {text}" for text in texts]
        asked = [
            other if whole and not self.tokenizer.unknown(other) else ""
            for other, whole in zip(others, is_whole, strict=True)
        ]
        found, offsets = self.tokenizer.encode_batch(asked)
        words = [
            self._without_blanks(found[start:stop]).tolist()
            for start, stop in itertools.pairwise(offsets.tolist())
        ]
        own = [ids[start:end].tolist() for start, end in zip(starts, ends, strict=True)]
        return [[] if word == mine else word for word, mine in zip(words, own, strict=True)]

    def _without_blanks(self, word: np.ndarray) -> np.ndarray:
        """The tokens from the first one on that is not white space alone."""
        return word[np.cumsum(~self.words.is_blank[word]) > 0]

    def longest(self, part: int, phrases: Phrases) -> np.ndarray:
        """The longest beginning of each phrase that stands in a part of the text; tokens, int64."""
        places = self.index.places[part]
        first = self._bound(part, phrases, behind=False)
        found = np.zeros(len(first), dtype=np.int64)
        for neighbour in (first - 1, first):
            is_there = np.flatnonzero((neighbour >= 0) & (neighbour < len(places)))
            common, _ = self._compare(part, neighbour[is_there], phrases[is_there])
            found[is_there] = np.maximum(found[is_there], common)
        return found

    def places_of(self, part: int, phrases: Phrases) -> list[np.ndarray]:
        """The places in a part of the text at which each phrase stands, as whole words: its first
        token in the training text and the one behind its last; (places, 2) int64 each."""
        bounds = zip(
            self._bound(part, phrases, behind=False).tolist(),
            self._bound(part, phrases, behind=True).tolist(),
            phrases.lengths.tolist(),
            strict=True,
        )
        return [self._whole_words(part, first, stop, length) for first, stop, length in bounds]

    def _whole_words(self, part: int, first: int, stop: int, length: int) -> np.ndarray:
        """Of the places from `first` to `stop` in a suffix array, those at which a word ends after
        `length` tokens."""
        start = self.index.metadata.parts[part].start
        kept = [np.empty((0, 2), dtype=np.int64)]
        for number in range(first, stop, BLOCK):
            places = self.index.places[part][number : min(number + BLOCK, stop)].astype(np.int64)
            ends = places + start + length  # the text ends with end-of-text: there is a token
            tokens = self.index.tokens
            whole = ends[~self.words.go_on(tokens[ends - 1], tokens[ends])]
            kept.append(np.stack([whole - length, whole], axis=1))
        return np.concatenate(kept)

    def _bound(self, part: int, phrases: Phrases, *, behind: bool) -> np.ndarray:
        """The first place in the order of a suffix array that is not before each phrase; or, if
        `behind`, that is behind all places at which it stands; int64."""
        low = np.zeros(len(phrases.lengths), dtype=np.int64)
        high = np.full(len(low), len(self.index.places[part]), dtype=np.int64)
        while len(open_ := np.flatnonzero(low < high)):
            middle = (low[open_] + high[open_]) // 2
            common, is_before = self._compare(part, middle, phrases[open_])
            goes_right = is_before | (behind & (common == phrases.lengths[open_]))
            low[open_[goes_right]] = middle[goes_right] + 1
            high[open_[~goes_right]] = middle[~goes_right]
        return low

    def _compare(
        self, part: int, order: np.ndarray, phrases: Phrases
    ) -> tuple[np.ndarray, np.ndarray]:
        """How many tokens the text at places of a suffix array has in common with each phrase, and
        whether it comes before the phrase.

        Args:
            part: the number of the part.
            order: positions in its suffix array; (phrases,).
            phrases: one for each position.
        """
        places = self.index.places[part][order].astype(np.int64)
        places += self.index.metadata.parts[part].start
        common = np.zeros(len(places), dtype=np.int64)
        is_before = np.zeros(len(places), dtype=np.bool_)
        open_ = np.arange(len(places))
        last = len(self.index.tokens) - 1  # end-of-text, which is in no phrase
        first = 0
        while len(open_):
            wanted = phrases[open_].tokens(first, first + COMPARED)
            at = np.minimum(places[open_, None] + np.arange(first, first + COMPARED), last)
            found = self.index.tokens[at]
            differs = found != wanted
            where = np.where(differs.any(axis=1), differs.argmax(axis=1), COMPARED)
            where = np.minimum(where, phrases.lengths[open_] - first)
            common[open_] += where
            is_whole = common[open_] == phrases.lengths[open_]
            goes_on = (where == COMPARED) & ~is_whole
            ends = np.flatnonzero(~goes_on & ~is_whole)
            is_before[open_[ends]] = found[ends, where[ends]] < wanted[ends, where[ends]]
            open_ = open_[goes_on]
            first += COMPARED
        return common, is_before


@dataclass(frozen=True)
class _Query:
    """The text that is searched for, cut into words."""

    starts: np.ndarray
    """The first token of each word."""
    ends: np.ndarray
    """The token behind the last one of each word."""
    before: np.ndarray
    """How many words that are not signs come before each word, and how many there are in all;
    (words + 1,)."""
    phrases: Phrases
    """The text from each word on, as it stands, and then the same with the other way of writing
    the first word; (2 · words)."""
    shifts: np.ndarray
    """By how many tokens each phrase is longer than the text from its word on; (2 · words)."""

    @classmethod
    def of(cls, search: Search, ids: np.ndarray) -> "_Query":
        """Cut a text into words and write down the phrases."""
        ids = np.where(search.is_special[ids], -1, ids)
        starts = np.flatnonzero(search.words.starts(ids))
        breaks = np.append(np.flatnonzero(~search.words.go_on(ids[:-1], ids[1:])) + 1, len(ids))
        ends = breaks[np.searchsorted(breaks, starts, side="right")]
        others = search.first_words(ids, starts, ends)
        heads = np.full((2 * len(starts), max([1, *map(len, others)])), -1, dtype=np.int64)
        for row, other in zip(heads[len(starts) :], others, strict=True):
            row[: len(other)] = other
        own = np.zeros(len(starts), dtype=np.int64)
        others_lengths = np.array([len(other) for other in others], dtype=np.int64)
        shifts = np.concatenate([own, others_lengths - (ends - starts)])
        rest = np.tile(len(ids) - starts, 2) + shifts
        is_any = np.concatenate([own == 0, others_lengths > 0])
        phrases = Phrases(
            ids=np.append(ids, -1),
            heads=heads,
            head_lengths=np.concatenate([own, others_lengths]),
            tails=np.concatenate([starts, ends]),
            lengths=np.where(is_any, rest, 0),
        )
        before = np.append(0, np.cumsum(search.words.counted(ids[starts])))
        return cls(starts, ends, before, phrases, shifts)

    def words_to(self, stops: np.ndarray, numbers: np.ndarray | None = None) -> np.ndarray:
        """How many words that are not signs end at or before each of `stops`, from the word of the
        same number on; or from the words `numbers` on."""
        own = np.arange(len(self.starts)) if numbers is None else numbers
        return self.before[np.searchsorted(self.ends, stops, side="right")] - self.before[own]

    def end_before(self, stop: int, number: int) -> int:
        """The end of the last word that ends before `stop`; 0 if there is none from the word
        `number` on."""
        last = int(np.searchsorted(self.ends, stop, side="left")) - 1
        return int(self.ends[last]) if last >= number else 0

    def reach(self, search: Search) -> np.ndarray:
        """For each word, where the longest phrase ends that begins with it and has its tokens in
        the training text, at the end of a word; 0 if there is none. (words,) int64."""
        count = len(self.starts)
        both = np.concatenate([self.starts, self.starts])
        found = np.zeros(count, dtype=np.int64)
        for part in range(len(search.index.places)):
            stops = both + search.longest(part, self.phrases) - self.shifts
            last = np.searchsorted(self.ends, stops, side="right") - 1
            numbers = np.tile(np.arange(count), 2)
            is_any = (last >= numbers) & (self.phrases.lengths > 0)
            stops = np.where(is_any, self.ends[np.maximum(last, 0)], 0) if count else stops
            found = np.maximum(found, np.maximum(stops[:count], stops[count:]))
        return found

    def places(self, search: Search, numbers: Sequence[int], reach: np.ndarray) -> list[np.ndarray]:
        """All places of the phrases that begin with the words `numbers` and end where `reach`
        says."""
        count = len(self.starts)
        own = np.array(numbers, dtype=np.int64)
        both = np.concatenate([own, own + count])
        lengths = np.tile(reach[own] - self.starts[own], 2) + self.shifts[both]
        is_any = np.flatnonzero(self.phrases.lengths[both] > 0)
        phrases = self.phrases[both[is_any]].of_length(lengths[is_any])
        found: list[list[np.ndarray]] = [[] for _ in numbers]
        for part in range(len(search.index.places)):
            for which, places in zip(is_any, search.places_of(part, phrases), strict=True):
                found[which % len(numbers)].append(places)
        return [np.concatenate(places) for places in found]
