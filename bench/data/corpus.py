"""Any amount of text that looks like a given text, fast, in bounded memory, the same every time.

A walk through the source copies a run of words, jumps to another place where the next word occurs,
and continues there (a Markov chain of order one with long runs). The words, their frequencies and
most phrases are those of the source, for a tokenizer and for zstd alike, but no line occurs twice.
A running number in front of each document makes sure that deduplication drops none. Slow peers get
an excerpt: the beginning of the corpus as JSON lines, in two files, because some peers work on one
file per process.
"""

import json
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

# Walks at a time and runs of each: some 8 MB
WALKS = 2048
STEPS = 64

FORMATS = ("jsonl", "txt", "jsonl.zst")

SEED = 0


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
    return Source(
        data, offsets, words, np.argsort(words, kind="stable"), np.cumsum(count) - count, count
    )


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
        starts, stops = _walk(source, draws)
        pieces = list(map(source.data.__getitem__, map(slice, starts.tolist(), stops.tolist())))
        runs = max(1.0, DOCUMENT_BYTES * len(pieces) / max(1, int((stops - starts).sum())))
        cuts = np.cumsum(draws.geometric(1 / runs, size=len(pieces)))
        for start, stop in pairwise([0, *cuts[cuts < len(pieces)].tolist(), len(pieces)]):
            yield f"No. {number:,}. ".encode() + b"".join(pieces[start:stop])
            number += 1


def _walk(source: Source, draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Where the runs of many walks begin and end in the source's bytes."""
    last = len(source.words) - 1
    starts = np.empty((WALKS, STEPS), dtype=np.int64)
    stops = np.empty_like(starts)
    place = draws.integers(0, last + 1, size=WALKS)
    for step in range(STEPS):
        end = np.minimum(place + draws.geometric(1 / RUN_WORDS, size=WALKS), last)
        starts[:, step] = source.offsets[place]
        stops[:, step] = source.offsets[end]
        word = source.words[end]
        place = source.places[
            source.first[word] + (draws.random(WALKS) * source.count[word]).astype(np.int64)
        ]
    return starts.ravel(), stops.ravel()


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
