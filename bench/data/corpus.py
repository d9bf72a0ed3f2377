"""Any amount of text that looks like a given text, fast, in bounded memory, the same every time.

A walk through the source copies a run of words, jumps to another place where the next word occurs,
and continues there (a Markov chain of order one with long runs). The frequent words, their
frequencies and most phrases are those of the source, but no line occurs twice.

New words keep coming, as in real text (Heaps' law). In place of a rare word stands one of an
endless list: the first half of one rare word of the source and the second half of another. The
number of a word in the list is drawn by the law of Zipf and Mandelbrot. Its exponent is the inverse
of Heaps' exponent, which is fitted on the source (Lü, Zhang and Zhou 2010, "Zipf's law leads to
Heaps' law"), and its offset gives the source's own number of rare words in as much text.

A running number in front of each document makes sure that deduplication drops none. Slow peers get
an excerpt: the beginning of the corpus as JSON lines, in two files, because some peers work on one
file per process.
"""

import json
import math
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import orjson
import zstandard

SOURCE_BYTES = 32_000_000
"""Of the source at most; more text gives no more variety to measure."""

RUN_WORDS = 12
"""Words from one place of the source, on the average."""

DOCUMENT_BYTES = 2_000
"""Text of a document, on the average; sizes fall off exponentially. Pages of the web have two or
three thousand."""

# Walks at a time and runs of each: some 2 MB, which a core's cache holds
WALKS = 512
STEPS = 64

FORMATS = ("jsonl", "txt", "jsonl.zst")

SEED = 0

RARE = 10
"""How often a rare word occurs in the source at most. Rare words are three quarters of all, and one
in twenty running ones."""

OCTAVES = 4
"""Heaps' exponent is fitted where the source was read to a sixteenth, an eighth, … and whole."""

_WORD = re.compile(rb"[A-Za-z]+(?=[.,;:!?]*(?: |\\n|\n|$))")
"""A word at the beginning of what stands between white space, without the marks behind it."""

LEAST_LETTERS = 4
"""The fewest letters of a rare word that is replaced: two halves of two letters."""


@dataclass(frozen=True)
class Source:
    """A text cut into words, ready to be walked through."""

    data: bytes
    """The text, escaped as JSON has it if the corpus is to be JSON lines."""
    offsets: np.ndarray
    """Where each word begins in `data`, and the end; a word ends with the white space after it."""
    words: np.ndarray
    """The number of each word, by place."""
    places: np.ndarray
    """Places of word 0, places of word 1, …"""
    first: np.ndarray
    """Where each word's places begin in `places`."""
    count: np.ndarray
    """How many places each word has."""
    rare: np.ndarray
    """Places of rare words, ascending."""
    rare_before: np.ndarray
    """How many rare words stand before each place."""
    middles: np.ndarray
    """Where the second half of each of them begins in `data`."""
    law: "WordLaw"
    """Which word of the endless list stands in a rare word's place."""


@dataclass(frozen=True)
class WordLaw:
    """The numbers of words in a list without end: number k is above x with odds of
    (1 + x / offset) ** (1 - zipf)."""

    zipf: float
    """Zipf's exponent, above 1."""
    offset: float

    def draw(self, draws: np.random.Generator, size: int) -> np.ndarray:
        """Numbers of words, int64."""
        numbers = self.offset * ((1 - draws.random(size)) ** (1 / (1 - self.zipf)) - 1)
        return np.minimum(numbers, 2.0**62).astype(np.int64)

    @classmethod
    def of(cls, exponent: float, types: int, tokens: int) -> "WordLaw":
        """The law by which `tokens` draws give about `types` words, and more draws more, to the
        power `exponent` (Heaps)."""
        zipf = 1 / min(max(exponent, 0.1), 0.9)
        low, high = 1e-3, 1e12
        while high / low > 1.001:
            middle = math.sqrt(low * high)
            low, high = (
                (middle, high) if cls(zipf, middle).expected(tokens) < types else (low, middle)
            )
        return cls(zipf, low)

    def expected(self, tokens: int) -> float:
        """How many different words so many draws give, on the average."""
        edges = np.unique(np.concatenate(([0], np.logspace(0, 15, 2000).round())))
        above = (1 + edges / self.offset) ** (1 - self.zipf)
        width, odds = np.diff(edges), -np.diff(above)
        return float((width * -np.expm1(-tokens * odds / width)).sum())


def read_source(texts: Iterable[str], *, escaped: bool) -> Source:
    """Prepare the documents of a corpus to be drawn from."""
    whole = "\n\n".join(texts) + "\n\n"
    data = json.dumps(whole, ensure_ascii=False)[1:-1].encode() if escaped else whole.encode()
    offsets = _word_offsets(np.frombuffer(data, dtype=np.uint8), escaped=escaped)
    numbers: dict[bytes, int] = {}
    words = np.array(
        [numbers.setdefault(data[a:b], len(numbers)) for a, b in pairwise(offsets.tolist())]
    )
    count = np.bincount(words)
    bare = [match[0] if (match := _WORD.match(word)) else b"" for word in numbers]
    rare, middles, law = _rare_words(words, bare, offsets)
    return Source(
        data=data,
        offsets=offsets,
        words=words,
        places=np.argsort(words, kind="stable"),
        first=np.cumsum(count) - count,
        count=count,
        rare=rare,
        rare_before=np.searchsorted(rare, np.arange(len(words) + 1)),
        middles=middles,
        law=law,
    )


def _rare_words(
    words: np.ndarray, bare: list[bytes], offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray, WordLaw]:
    """Places of rare words, their middles, and the law of their list.

    Args:
        words: the number of the word at each place.
        bare: the letters of each word; empty for what is more than letters.
        offsets: where each place begins.
    """
    numbers: dict[bytes, int] = {}
    kinds = np.array([numbers.setdefault(letters, len(numbers)) for letters in bare])[words]
    count = np.bincount(kinds)
    sizes = np.array([len(letters) for letters in numbers])
    is_rare = (count <= RARE) & (sizes >= LEAST_LETTERS)
    rare = np.flatnonzero(is_rare[kinds])
    law = WordLaw.of(heaps_exponent(kinds[sizes[kinds] > 0]), int(is_rare.sum()), len(rare))
    return rare, offsets[rare] + sizes[kinds[rare]] // 2, law


PASSAGE = 200
"""Words that stay together when the exponent is fitted."""


def heaps_exponent(kinds: np.ndarray) -> float:
    """The power of the length of a text with which its different words grow, by a line through the
    logarithms. Passages are shuffled, so that it does not depend on which source comes first.

    Args:
        kinds: the number of each word of the text, in its order.
    """
    passages = np.array_split(kinds, max(1, len(kinds) // PASSAGE))
    random.Random(SEED).shuffle(passages)
    _, first = np.unique(np.concatenate(passages), return_index=True)
    lengths = len(kinds) / 2.0 ** np.arange(OCTAVES + 1)
    found = np.maximum(1, np.searchsorted(np.sort(first), lengths))
    return float(np.polyfit(np.log(np.maximum(1, lengths)), np.log(found), 1)[0])


def _word_offsets(data: np.ndarray, *, escaped: bool) -> np.ndarray:
    """The start, every place where white space ends, and the end: never within an escape."""
    blank = data == ord(" ")
    if escaped:
        line_break = np.flatnonzero((data[:-1] == ord("\\")) & (data[1:] == ord("n")))
        blank[line_break] = blank[line_break + 1] = True
    else:
        blank |= data == ord("\n")
    return np.concatenate(([0], np.flatnonzero(blank[:-1] & ~blank[1:]) + 1, [len(data)]))


def documents(source: Source) -> Iterator[bytes]:
    """Documents without end; the first ones do not depend on how many are taken."""
    draws = np.random.default_rng(SEED)
    number = 0
    while True:
        begin, end = _walk(source, draws)
        text, run_starts = _text(source, *_pieces(source, begin, end, draws))
        runs = max(1.0, DOCUMENT_BYTES * len(begin) / max(1, len(text)))
        cuts = np.cumsum(draws.geometric(1 / runs, size=len(begin)))
        cuts = run_starts[cuts[cuts < len(begin)]]
        for start, stop in pairwise([0, *cuts.tolist(), len(text)]):
            yield f"No. {number:,}. ".encode() + text[start:stop]
            number += 1


def _text(
    source: Source, starts: np.ndarray, stops: np.ndarray, first: np.ndarray
) -> tuple[bytes, np.ndarray]:
    """The pieces behind each other, and where in them each run begins."""
    lengths = stops - starts
    before = np.cumsum(lengths) - lengths
    at = np.repeat(starts - before, lengths)
    at += np.arange(len(at))
    return np.frombuffer(source.data, dtype=np.uint8)[at].tobytes(), before[first]


def _walk(source: Source, draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The places where the runs of many walks begin and end."""
    last = len(source.words) - 1
    begin = np.empty((WALKS, STEPS), dtype=np.int64)
    end = np.empty_like(begin)
    place = draws.integers(0, last + 1, size=WALKS)
    for step in range(STEPS):
        begin[:, step] = place
        end[:, step] = np.minimum(place + draws.geometric(1 / RUN_WORDS, size=WALKS), last)
        word = source.words[end[:, step]]
        place = source.places[
            source.first[word] + (draws.random(WALKS) * source.count[word]).astype(np.int64)
        ]
    return begin.ravel(), end.ravel()


def _pieces(
    source: Source, begin: np.ndarray, end: np.ndarray, draws: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut runs at rare words, and put words of the endless list into their place.

    Returns:
        Where each piece begins and ends in the source's bytes, and each run's first piece.
    """
    low = source.rare_before[begin]
    rare = source.rare_before[end] - low
    before = np.cumsum(rare) - rare
    first = np.arange(len(begin)) + 3 * before  # a rare word adds its two halves and what follows
    starts = np.empty(len(begin) + 3 * int(rare.sum()), dtype=np.int64)
    stops = np.empty_like(starts)
    starts[first] = source.offsets[begin]
    stops[first + 3 * rare] = source.offsets[end]
    # Each rare word within the runs: its number in `source.rare`, and the piece before it
    run = np.repeat(np.arange(len(begin)), rare)
    within = np.arange(len(run)) - before[run]
    places = source.rare[low[run] + within]
    piece = first[run] + 3 * within
    stops[piece] = source.offsets[places]
    starts[piece + 3] = source.offsets[places + 1]
    mixed = _mixed(source.law.draw(draws, len(run)))
    head, tail = (mixed >> np.uint64(32)), (mixed & np.uint64(0xFFFFFFFF))
    if len(run):
        head, tail = (half % np.uint64(len(source.rare)) for half in (head, tail))
    starts[piece + 1] = source.offsets[source.rare[head]]
    stops[piece + 1] = source.middles[head]
    starts[piece + 2] = source.middles[tail]
    stops[piece + 2] = source.offsets[source.rare[tail] + 1]
    return starts, stops, first


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """64 bits that look random for each number, always the same: splitmix64 (Steele, Lea and Flood
    2014)."""
    bits = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@dataclass(frozen=True)
class Corpus:
    """What was written."""

    documents: int
    text_bytes: int
    """Of the documents, in UTF-8; JSON's escapes count as they stand."""
    file_bytes: int


def write_corpus(source: Source, path: Path, size: int, form: str) -> Corpus:
    """Write documents to `path` until they make `size` bytes (before compression); `form` is one of
    FORMATS."""
    begin, end = (b"", b"\n\n") if form == "txt" else (b'{"text": "', b'"}\n')
    count = text = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as plain:
        file = (
            zstandard.ZstdCompressor(level=3, threads=2).stream_writer(plain)
            if form == "jsonl.zst"
            else plain
        )
        with file:
            for document in documents(source):
                file.write(begin + document + end)
                count = count + 1
                text = text + len(document)
                if text + count * len(begin + end) >= size:
                    break
    return Corpus(count, text, path.stat().st_size)


FOLDER = Path("excerpts")

SIZES = FOLDER / "sizes.json"

ENCODE = "encode"
CLEAN = "clean"
FILTER = "filter"

BYTES = {ENCODE: 20_000_000, CLEAN: 20_000_000, FILTER: 2_000_000}
"""UTF-8 bytes of text of each excerpt."""


def write_excerpts(source: Source, project: Path, limit: int) -> None:
    """Write all excerpts, of at most `limit` bytes of text each."""
    sizes = {
        name: _write(source, project / FOLDER / name, min(size, limit))
        for name, size in BYTES.items()
    }
    (project / SIZES).write_text(json.dumps(sizes))


def _write(source: Source, folder: Path, size: int) -> int:
    folder.mkdir(parents=True)
    chosen: list[bytes] = []
    total = 0
    stream = documents(source)
    while total < size:
        chosen.append(next(stream))
        total += len(chosen[-1])
    for number in (0, 1):
        with (folder / f"{number}.jsonl").open("wb") as file:
            file.writelines(b'{"text": "%b"}\n' % one for one in islice(chosen, number, None, 2))
    return total


def read_texts(name: str) -> list[str]:
    """The documents of an excerpt."""
    return [
        orjson.loads(line)["text"]
        for path in sorted((FOLDER / name).iterdir())
        for line in path.open("rb")
    ]


def size_of(name: str) -> int:
    """UTF-8 bytes of an excerpt's documents."""
    return json.loads(SIZES.read_text())[name]
