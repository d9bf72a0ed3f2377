"""What a worker is handed: a piece of the input, small enough that several fit into memory.

What cannot grow when it is read (plain JSON lines, small files) the workers read themselves, byte ranges of one large
file side by side. What can grow (archives, parquet), or must be read from its beginning (one large JSON array, CSV,
text), the caller reads, and hands out lines or texts. Where a piece ends depends on the input alone, never on the
workers; what comes out does not depend on it.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from tokenmill.data.encoding import SNIFFED, encoding_of, utf8
from tokenmill.data.params import CleanParams
from tokenmill.data.readers import quick_texts, texts, texts_of_lines
from tokenmill.data.records import whole_lines
from tokenmill.data.report import Tally
from tokenmill.data.sources import BLOCK, Source, blocks, opened

PIECE_BYTES = 8 << 20
"""Bytes of a piece, about; a single record may be longer."""


QUICK_BYTES = 4 * PIECE_BYTES
"""A piece with longer lines than that is read line by line, for memory's sake."""


PIECE_ROWS = 1 << 16
"""Texts of a piece at most, where the caller reads them."""


PIECE_FILES = 1024
"""Small files of a piece at most."""


Read: TypeAlias = tuple[pl.Series, pl.Series]
"""Texts (String), and for each the name of the file it came from."""


@dataclass(frozen=True)
class Lines:
    """The JSON lines that begin within a range of bytes of a plain file."""

    source: Source
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Bytes on disk that count as read once this is done."""
        return self.end - self.begin

    def read(self, params: CleanParams, tally: Tally) -> Read:
        """The texts; a line that goes on beyond the range is read to its end."""
        return _of_lines(self._blocks(), self.source, params, tally, first=self.begin == 0)

    def _blocks(self) -> Iterator[bytes]:
        with opened(self.source) as file:
            if self.begin:
                file.seek(self.begin - 1)
                rest = file.read(self.size + 1)
                begin = rest.find(b"\n", 0, self.size) + 1  # a line that begins at the end is the next piece's
                if not begin:
                    return
                block = rest[begin:]
            else:
                block = file.read(self.size)
                mark, _ = encoding_of(block[:SNIFFED], str(self.source.path))
                block = block[len(mark) :]
            while block and not block.endswith(b"\n"):
                yield block
                block = file.read(BLOCK)
                block = block[: block.find(b"\n") + 1] or block
            yield block


@dataclass(frozen=True)
class Block:
    """Whole JSON lines out of a file that has to be read from its beginning."""

    source: Source
    data: bytes
    first: bool
    """Whether these are the first lines of the file."""
    size: int = 0

    def read(self, params: CleanParams, tally: Tally) -> Read:
        """The texts."""
        return _of_lines(iter([self.data]), self.source, params, tally, first=self.first)


@dataclass(frozen=True)
class Files:
    """Small files, whole."""

    sources: list[Source]

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(source.size for source in self.sources)

    def read(self, params: CleanParams, tally: Tally) -> Read:
        """The texts of one file after the other."""
        return _taken([(text, source.name) for source in self.sources for text in texts(source, params, tally)])


@dataclass(frozen=True)
class Texts:
    """Texts that the caller has read."""

    found: Read
    tally: Tally
    """What was counted when they were read."""
    size: int = 0

    def read(self, params: CleanParams, tally: Tally) -> Read:  # noqa: ARG002  (like the others)
        """The texts."""
        tally.merge(self.tally)
        return self.found


Piece: TypeAlias = Lines | Block | Files | Texts


def _of_lines(blocks: Iterator[bytes], source: Source, params: CleanParams, tally: Tally, *, first: bool) -> Read:
    parts, size = [], 0
    for block in blocks:
        parts.append(block)
        size += len(block)
        if size > QUICK_BYTES:
            break
    found = quick_texts(b"".join(parts), params) if size <= QUICK_BYTES else None
    if found is None:
        every = itertools.chain(parts, blocks)
        found = _column("text", texts_of_lines(every, source, params, tally, first=first))
    return found, pl.repeat(source.name, len(found), dtype=pl.String, eager=True)


def _taken(pairs: list[tuple[str, str]]) -> Read:
    """Texts and their files as columns; the list, which would hold them a second time, is emptied."""
    read = _column("text", (text for text, _ in pairs)), _column("source", (name for _, name in pairs))
    pairs.clear()
    return read


def _column(name: str, values: Iterable[str]) -> pl.Series:
    return pl.Series(name, list(values), dtype=pl.String)


class Planner:
    """Cuts the input into pieces."""

    def __init__(self, params: CleanParams, advance: Callable[[int], None], size: int = PIECE_BYTES):
        """Make pieces of about `size` bytes; tell `advance` the bytes on disk that are read for that here already."""
        self._params, self._advance, self._size = params, advance, size

    def pieces(self, sources: Iterable[Source]) -> Iterator[Piece]:
        """All of the sources, in their order."""
        for way, group in itertools.groupby(sources, self._way):
            yield from way(group)

    def _way(self, source: Source) -> Callable[[Iterable[Source]], Iterator[Piece]]:
        """How a file is divided."""
        plain = source.compression is None and source.format != ".parquet"
        if plain and source.size <= self._size:
            return self._files
        if source.format != ".jsonl":
            return self._texts
        return self._lines if plain and _is_utf8(source) else self._blocks

    def _files(self, sources: Iterable[Source]) -> Iterator[Files]:
        group: list[Source] = []
        size = 0
        for source in sources:
            if group and (size + source.size > self._size or len(group) == PIECE_FILES):
                yield Files(group)
                group, size = [], 0
            group.append(source)
            size += source.size
        yield Files(group)

    def _lines(self, sources: Iterable[Source]) -> Iterator[Lines]:
        for source in sources:
            for begin in range(0, source.size, self._size):
                yield Lines(source, begin, min(begin + self._size, source.size))

    def _blocks(self, sources: Iterable[Source]) -> Iterator[Block]:
        for source in sources:
            stream = utf8(blocks(source, self._advance), str(source.path))
            for number, data in enumerate(whole_lines(stream, self._size)):
                yield Block(source, data, first=number == 0)

    def _texts(self, sources: Iterable[Source]) -> Iterator[Texts]:
        found: list[tuple[str, str]] = []
        chars, tally = 0, Tally()
        for source in sources:
            for text in texts(source, self._params, tally, self._advance):
                found.append((text, source.name))
                chars += len(text)
                if chars >= self._size or len(found) == PIECE_ROWS:
                    yield Texts(_taken(found), tally.take())
                    chars = 0
        yield Texts(_taken(found), tally)


def _is_utf8(source: Source) -> bool:
    with opened(source) as file:
        return encoding_of(file.read(SNIFFED), str(source.path))[1] == "utf-8"
