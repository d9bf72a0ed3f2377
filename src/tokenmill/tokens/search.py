"""Find in the training text the longest phrases of another text: where an answer comes from.

The method is that of OLMoTrace (Liu et al. 2025, section 3): the maximal spans of a text, those
that stand in the training text word for word and cannot be made longer, found by suffix arrays. A
span consists of whole words, and counts where whole words stand.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokenmill.formats.token_index import ORDERED, TokenIndex
from tokenmill.formats.tokenizer import TextTokenizer, token_bytes
from tokenmill.tokens.words import Words

COMPARED = 8
"""The number of tokens of a phrase that are compared first. Most differ within them. Each time
after it, twice as many are."""

BLOCK = 1 << 16
"""The number of places, about, that are looked at together; or of the tokens of fewer places."""

STRIDES = (4096, 64, 1)
"""The distances of the words that are searched for together. Between two words whose longest
phrases end at the same place, all end there, so a long passage takes a few searches."""

SAMPLES = 1 << 16
"""At most so many places of a suffix array, evenly spread, have their first tokens in memory. The
binary search begins between two of them."""


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
    """The text, -1, and the own tokens of all phrases; int64."""
    heads: np.ndarray
    """Where the own tokens of each phrase begin in `ids`; (phrases,) int64."""
    head_lengths: np.ndarray
    """The number of own tokens of each; (phrases,) int64."""
    tails: np.ndarray
    """The token of the text that follows them; (phrases,) int64."""
    lengths: np.ndarray
    """The number of tokens of each; (phrases,) int64."""

    def __len__(self) -> int:
        """The number of phrases."""
        return len(self.lengths)

    def __getitem__(self, which: np.ndarray | slice) -> "Phrases":
        """The phrases of these numbers."""
        parts = (self.heads, self.head_lengths, self.tails, self.lengths)
        return Phrases(self.ids, *(part[which] for part in parts))

    def stops(self, lengths: np.ndarray) -> np.ndarray:
        """The tokens of the text behind their first `lengths` tokens."""
        return self.tails + lengths - self.head_lengths

    def up_to(self, stops: np.ndarray) -> "Phrases":
        """Their beginnings up to these tokens of the text."""
        return replace(self, lengths=self.head_lengths + stops - self.tails)

    def tokens(self, columns: np.ndarray) -> np.ndarray:
        """Their tokens in these columns, with any id behind their ends; (phrases, columns)
        int64."""
        own = self.head_lengths[:, None]
        in_text = self.tails[:, None] + columns - own
        at = np.where(columns < own, self.heads[:, None] + columns, in_text)
        return self.ids[np.minimum(at, len(self.ids) - 1)]


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
        self.bytes = [*token_bytes(tokenizer), b""]
        """The UTF-8 bytes of each token, and of -1."""
        self.chars = np.array([sum(byte & 0xC0 != 0x80 for byte in one) for one in self.bytes])
        """The number of characters that begin in each token, and in -1; int64."""
        self._counts = np.array([[len(places)] for places in index.places])
        self._every = int(self._counts.max()) // SAMPLES + 1
        # A key is as many tokens as fit into 63 bits, the first one in the highest bits
        base = tokenizer.vocab_size + 1
        self._weights = base ** np.arange(min(COMPARED, int(63 / np.log2(base))))[::-1]
        self._keys = [self._sampled(part) for part in range(len(index.places))]

    def spans(self, ids: Sequence[int], *, min_words: int) -> list[MatchingSpan]:
        """The maximal spans of `min_words` words or more, in the order of the text.

        Args:
            ids: the tokens of a text; -1, or a special one, is in no span.
            min_words: the fewest words of a span; signs are none.
        """
        return _Query.of(self, np.array(ids, dtype=np.int64)).spans(min_words)

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of these tokens; what is no whole character at its ends is left out."""
        return b"".join(self.bytes[token] for token in ids).decode("utf-8", "ignore")

    def first_words(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> list[list[int]]:
        """For each word from `starts` to `ends`, its tokens in the other way of writing it: with a
        space before it, or without. Empty where there is no other."""
        own = [ids[start:end].tolist() for start, end in zip(starts, ends, strict=True)]
        found, offsets = self.tokenizer.encode_batch([*map(self._other_spelling, own)])
        is_blank = self.words.is_blank.tolist()
        words = [
            list(itertools.dropwhile(is_blank.__getitem__, found[start:stop].tolist()))
            for start, stop in itertools.pairwise(offsets.tolist())
        ]
        return [[] if word == mine else word for word, mine in zip(words, own, strict=True)]

    def _other_spelling(self, ids: Sequence[int]) -> str:
        """A word with a space before it, or without the one that it has; empty if it cannot be
        written so."""
        text = self.text_of(ids)
        other = text[1:] if text[:1] == " " else f" {text}"
        is_whole = len(text.encode()) == sum(len(self.bytes[token]) for token in ids)
        return other if is_whole and not self.tokenizer.unknown(other) else ""

    def _sampled(self, part: int) -> np.ndarray:
        """The keys of the text at some positions of a suffix array, evenly spread."""
        order = np.arange(0, len(self.index.places[part]), self._every)
        places = self.index.places_at(np.full(len(order), part), order)
        at = places[:, None] + np.arange(len(self._weights))
        tokens = self.index.tokens
        return self._key(np.where(at < len(tokens), tokens[np.minimum(at, len(tokens) - 1)], -1))

    def _key(self, tokens: np.ndarray) -> np.ndarray:
        """Rows of tokens, or -1, as numbers in the same order; int64."""
        return (tokens + 1) @ self._weights

    def longest(self, phrases: Phrases) -> np.ndarray:
        """The longest beginning of each phrase that stands in the training text; tokens, int64."""
        size = BLOCK // len(self._keys) + 1
        blocks = [phrases[start : start + size] for start in range(0, len(phrases), size)]
        found = [self._bound(block, behind=False)[1].max(axis=(0, 1)) for block in blocks]
        return np.concatenate([np.empty(0, dtype=np.int64), *found])

    def places_of(self, phrases: Phrases) -> list[np.ndarray]:
        """The places at which each phrase stands, as whole words: its first token in the training
        text and the one behind its last; (places, 2) int64 each."""
        first, _ = self._bound(phrases, behind=False)
        stop, _ = self._bound(phrases, behind=True)
        found: list[list[np.ndarray]] = [[np.empty((0, 2), dtype=np.int64)] for _ in first.T]
        for part, which in np.argwhere(first < stop).tolist():
            orders = int(first[part, which]), int(stop[part, which])
            found[which] += self._whole_words(part, *orders, int(phrases.lengths[which]))
        return [np.concatenate(places) for places in found]

    def _whole_words(self, part: int, first: int, stop: int, length: int) -> Iterator[np.ndarray]:
        """Of the places from `first` to `stop` in a suffix array, those at which a word ends after
        `length` tokens."""
        tokens = self.index.tokens
        for number in range(first, stop, BLOCK):
            order = np.arange(number, min(number + BLOCK, stop))
            # The text ends with end-of-text, so a token follows
            ends = self.index.places_at(np.full(len(order), part), order) + length
            whole = ends[~self.words.go_on(tokens[ends - 1], tokens[ends])]
            yield np.stack([whole - length, whole], axis=1)

    def _bound(self, phrases: Phrases, *, behind: bool) -> tuple[np.ndarray, np.ndarray]:
        """Search for phrases in the suffix arrays of all parts at the same time.

        As the order of places is that of their texts, what lies between two places has the tokens
        that both have in common with a phrase (Manber and Myers 1993, section 2).

        Returns:
            The first position in each array that is not before each phrase, or, if `behind`, that
            is behind all places at which it stands; (parts, phrases) int64. And how many tokens the
            places before it and at it have in common with the phrase; (2, parts, phrases) int64.
        """
        bounds = self._near(phrases)
        common = np.zeros_like(bounds)
        low, high = bounds.reshape(2, -1)
        before, after = common.reshape(2, -1)
        while len(open_ := np.flatnonzero(low < high)):
            part, which = np.divmod(open_, len(phrases))
            wanted = phrases[which]
            middle = (low[open_] + high[open_]) // 2
            known = np.minimum(np.minimum(before[open_], after[open_]), ORDERED)
            found, is_less = self._compare(self.index.places_at(part, middle), wanted, known)
            goes_right = is_less | (behind & (found == wanted.lengths))
            right, left = open_[goes_right], open_[~goes_right]
            low[right], before[right] = middle[goes_right] + 1, found[goes_right]
            high[left], after[left] = middle[~goes_right], found[~goes_right]
        return bounds[0], common

    def _near(self, phrases: Phrases) -> np.ndarray:
        """Two positions in each suffix array between which the bounds of each phrase lie, and the
        places before and at them, too; (2, parts, phrases) int64."""
        columns = np.arange(len(self._weights))
        tokens = phrases.tokens(columns[None])
        is_own = columns < phrases.lengths[:, None]
        least = self._key(np.where(is_own, tokens, -1))
        most = self._key(np.where(is_own, tokens, self.tokenizer.vocab_size - 1))
        found = np.empty((2, len(self._keys), len(phrases)), dtype=np.int64)
        for part, keys in enumerate(self._keys):
            found[0, part] = (np.searchsorted(keys, least) - 1) * self._every
            found[1, part] = np.searchsorted(keys, most, side="right") * self._every + 1
        return np.clip(found, 0, self._counts)

    def _compare(
        self, places: np.ndarray, phrases: Phrases, known: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """How many tokens the text at places has in common with phrases, and whether it comes
        before them.

        Args:
            places: tokens of the training text.
            phrases: one for each place.
            known: how many tokens they have in common at least.
        """
        common = known.copy()
        is_less = np.zeros(len(places), dtype=np.bool_)
        open_ = np.arange(len(places))
        last = len(self.index.tokens) - 1  # end-of-text, which is in no phrase
        width = COMPARED
        while len(open_):
            columns = common[open_, None] + np.arange(width)
            wanted = phrases[open_].tokens(columns)
            found = self.index.tokens[np.minimum(places[open_, None] + columns, last)]
            differs = found != wanted
            where = np.where(differs.any(axis=1), differs.argmax(axis=1), width)
            rows = np.flatnonzero(where < width)
            is_less[open_[rows]] = found[rows, where[rows]] < wanted[rows, where[rows]]
            common[open_] += where
            open_ = open_[(where == width) & (common[open_] < phrases.lengths[open_])]
            width = max(COMPARED, min(2 * width, BLOCK // max(1, len(open_))))
        return np.minimum(common, phrases.lengths), is_less & (common < phrases.lengths)


@dataclass(frozen=True)
class _Query:
    """The text that is searched for, cut into words."""

    search: Search
    starts: np.ndarray
    """The first token of each word."""
    ends: np.ndarray
    """The token behind the last one of each word."""
    before: np.ndarray
    """How many words that are not signs come before each word, and how many there are in all;
    (words + 1,)."""
    phrases: Phrases
    """The text from each word on, as it stands, and then the same with the other way of writing
    the first word, if there is one."""
    words: np.ndarray
    """The number of the word with which each phrase begins; (phrases,)."""

    @classmethod
    def of(cls, search: Search, ids: np.ndarray) -> "_Query":
        """Cut a text into words and write down the phrases."""
        ids = np.where(search.is_special[ids], -1, ids)
        starts, ends = search.words.bounds(ids)
        others = search.first_words(ids, starts, ends)
        found = np.flatnonzero([len(other) > 0 for other in others])
        words = np.concatenate([np.arange(len(starts)), found])
        lengths = np.array([0] * len(starts) + [len(others[word]) for word in found], np.int64)
        tails = np.concatenate([starts, ends[found]])
        phrases = Phrases(
            ids=np.concatenate([ids, [-1], *others]).astype(np.int64),
            heads=len(ids) + 1 + np.cumsum(lengths) - lengths,
            head_lengths=lengths,
            tails=tails,
            lengths=lengths + len(ids) - tails,
        )
        before = np.append(0, np.cumsum(search.words.counted(ids[starts])))
        return cls(search, starts, ends, before, phrases, words)

    def spans(self, min_words: int) -> list[MatchingSpan]:
        """See `Search.spans`."""
        numbers = np.arange(len(self.starts))
        reach = self._reach()
        known: dict[int, MatchingSpan] = {}
        half: set[int] = set()  # ends at which a word of the training text goes on
        while True:
            enough = self._words_between(numbers, reach) >= min_words
            furthest = np.maximum.accumulate(np.concatenate([[0], reach]))[:-1]
            wanted = enough & (reach > furthest)
            # Where one phrase ends in half a word, those that end there too probably do
            asked = np.flatnonzero(wanted | (enough & np.isin(reach, [*half])))
            unknown = [number for number in asked.tolist() if number not in known]
            if not unknown:
                return [known[number] for number in np.flatnonzero(wanted).tolist()]
            for number, places in zip(unknown, self._places(unknown, reach), strict=True):
                if len(places):
                    known[number] = self._span(number, int(reach[number]), places)
                else:
                    half.add(int(reach[number]))
                    reach[number] = self._end_before(int(reach[number]), number)

    def _span(self, number: int, stop: int, places: np.ndarray) -> MatchingSpan:
        return MatchingSpan(
            start=int(self.starts[number]),
            stop=stop,
            words=int(self._words_between(number, stop)),
            places=places[places[:, 0].argsort()],
            documents=np.unique(self.search.index.document_of(places[:, 0])),
        )

    def _words_between(self, numbers: np.ndarray | int, stops: np.ndarray | int) -> np.ndarray:
        """How many words that are not signs end at or before `stops`, from the words `numbers`
        on."""
        return self.before[np.searchsorted(self.ends, stops, side="right")] - self.before[numbers]

    def _end_before(self, stop: int, number: int) -> int:
        """The end of the last word that ends before `stop`; 0 if there is none from the word
        `number` on."""
        last = int(np.searchsorted(self.ends, stop, side="left")) - 1
        return int(self.ends[last]) if last >= number else 0

    def _reach(self) -> np.ndarray:
        """For each word, where the longest phrase ends that begins with it and has its tokens in
        the training text, at the end of a word; 0 if there is none. (words,) int64."""
        words = np.arange(len(self.starts))
        found = np.zeros_like(words)
        is_known = np.zeros(len(words), dtype=np.bool_)
        for stride in STRIDES:
            is_asked = ~is_known & ((words % stride == 0) | (words == len(words) - 1))
            self._search_for(is_asked, found)
            is_known |= is_asked
            before = np.maximum.accumulate(np.where(is_known, words, 0))
            behind = np.minimum.accumulate(np.where(is_known, words, len(words) - 1)[::-1])[::-1]
            is_between = (found[before] == found[behind]) & (found[before] > 0)
            found[is_between] = found[before[is_between]]
            is_known |= is_between
        return found

    def _search_for(self, is_asked: np.ndarray, found: np.ndarray) -> None:
        """Write down what `_reach` gives for some words.

        Args:
            is_asked: whether to search for each word; (words,) bool.
            found: the result, 0 for these words before; (words,) int64.
        """
        which = np.flatnonzero(is_asked[self.words])
        words, phrases = self.words[which], self.phrases[which]
        stops = phrases.stops(self.search.longest(phrases))
        last = np.searchsorted(self.ends, stops, side="right") - 1
        is_any = last >= words
        np.maximum.at(found, words[is_any], self.ends[last[is_any]])

    def _places(self, numbers: Sequence[int], reach: np.ndarray) -> list[np.ndarray]:
        """All places of the phrases that begin with the words `numbers` and end where `reach`
        says."""
        wanted = np.flatnonzero(np.isin(self.words, numbers))
        words = self.words[wanted]
        phrases = self.phrases[wanted].up_to(reach[words])
        found: dict[int, list[np.ndarray]] = {number: [] for number in numbers}
        for word, places in zip(words.tolist(), self.search.places_of(phrases), strict=True):
            found[word].append(places)
        return [np.concatenate(found[number]) for number in numbers]
