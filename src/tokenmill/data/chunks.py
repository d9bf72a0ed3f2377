"""Chunks: units of work, small enough that several fit into memory.

Input that cannot grow when it is read (plain JSON lines, small files) is read by the workers, byte
ranges of one large file in parallel. Other input is read by the caller, who hands out lines or
texts: input that can grow (archives, parquet), and input that must be read from its beginning (one
large JSON array, CSV, text). Where a chunk ends depends on the input alone, and the texts do not
depend on it.
"""

import codecs
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import polars as pl

from tokenmill.data.encoding import has_plain_lines, read_utf8, utf8, without_damage
from tokenmill.data.json_records import polars_texts, texts_of_lines, whole_lines
from tokenmill.data.params import CleanParams
from tokenmill.data.readers import FORMATS, texts
from tokenmill.data.report import Tally
from tokenmill.data.sources import BLOCK_BYTES, Advance, Source, opened

CHUNK_BYTES = 8 << 20
"""The approximate size of a chunk in bytes. A single record may be longer."""

CHUNK_TEXTS = 1 << 16
"""The most texts of a chunk whose texts the caller reads."""

CHUNK_FILES = 1024
"""The most small files of a chunk."""

POLARS_BYTES = 4 * CHUNK_BYTES
"""A chunk of more bytes than this, which long lines can cause, is read line by line to bound
memory."""

Texts: TypeAlias = tuple[pl.Series, pl.Series]
"""The texts (String), and for each text the name of the file that it comes from."""


@dataclass(frozen=True)
class Chunk:
    """A part of the input that a worker reads."""

    read: Callable[[CleanParams, Tally], Texts]
    """The function that reads its texts. It can be pickled."""
    size: int = 0
    """Bytes on disk that count as read when the chunk is done; 0 if the caller has read them
    already."""


class Planner:
    """Cuts the input into chunks of about `size` bytes."""

    def __init__(self, params: CleanParams, advance: Advance, size: int = CHUNK_BYTES):
        """Report the bytes on disk that are already read here to `advance`."""
        self._params = params
        self._advance = advance
        self._size = size

    def chunks(self, sources: Iterable[Source]) -> Iterator[Chunk]:
        """The chunks of all sources, in their order."""
        for strategy, group in itertools.groupby(sources, self._strategy):
            yield from strategy(group)

    def _strategy(self, source: Source) -> Callable[[Iterable[Source]], Iterator[Chunk]]:
        plain = source.compression is None and not FORMATS[source.format].compressed
        if plain and source.size <= self._size:
            return self._small_files
        if source.format != ".jsonl":
            return self._texts
        return self._line_ranges if plain and has_plain_lines(source) else self._line_blocks

    def _small_files(self, sources: Iterable[Source]) -> Iterator[Chunk]:
        group: list[Source] = []
        size = 0
        for source in sources:
            if group and (size + source.size > self._size or len(group) == CHUNK_FILES):
                yield Chunk(partial(_read_files, group), size)
                group = []
                size = 0
            group.append(source)
            size += source.size
        yield Chunk(partial(_read_files, group), size)

    def _line_ranges(self, sources: Iterable[Source]) -> Iterator[Chunk]:
        for source in sources:
            for begin in range(0, source.size, self._size):
                size = min(self._size, source.size - begin)
                yield Chunk(partial(_read_range, source, begin, size), size)

    def _line_blocks(self, sources: Iterable[Source]) -> Iterator[Chunk]:
        for source in sources:
            tally = Tally()
            stream = read_utf8(source, tally, self._advance)
            for number, data in enumerate(whole_lines(stream, self._size)):
                yield Chunk(
                    partial(_read_block, source, data, first=number == 0, encodings=tally.encodings)
                )

    def _texts(self, sources: Iterable[Source]) -> Iterator[Chunk]:
        found: list[tuple[str, str]] = []
        chars = 0
        tally = Tally()
        for source in sources:
            for text in texts(source, self._params, tally, self._advance):
                found.append((text, source.name))
                chars += len(text)
                if chars >= self._size or len(found) == CHUNK_TEXTS:
                    yield Chunk(partial(_counted, _columns(found), tally.take()))
                    chars = 0
        yield Chunk(partial(_counted, _columns(found), tally))


def _read_files(sources: list[Source], params: CleanParams, tally: Tally) -> Texts:
    """The texts of whole files, one file after the other."""
    return _columns(
        [(text, source.name) for source in sources for text in texts(source, params, tally)]
    )


def _read_range(source: Source, begin: int, size: int, params: CleanParams, tally: Tally) -> Texts:
    """The texts of the JSON lines that begin within a range of bytes of a plain file. The last line
    is read to its end."""
    lines = utf8(_range_blocks(source, begin, size), source, tally, first=False)
    return _read_lines(lines, source, params, tally, first=begin == 0)


def _range_blocks(source: Source, begin: int, size: int) -> Iterator[bytes]:
    with opened(source) as file:
        if begin:
            file.seek(begin - 1)
            block = file.read(size + 1)
            # A line that begins at the end belongs to the next chunk
            start = block.find(b"\n", 0, size) + 1
            if not start:
                return
            block = block[start:]
        else:
            block = file.read(size).removeprefix(codecs.BOM_UTF8)
        while block and not block.endswith(b"\n"):
            yield block
            block = file.read(BLOCK_BYTES)
            block = block[: block.find(b"\n") + 1] or block
        yield block


def _read_block(
    source: Source,
    data: bytes,
    params: CleanParams,
    tally: Tally,
    *,
    first: bool,
    encodings: dict[str, str],
) -> Texts:
    """The texts of whole JSON lines that the caller has read. `encodings` names the encoding of the
    file, if that is not UTF-8."""
    tally.encodings.update(encodings)
    return _read_lines(iter([data]), source, params, tally, first=first)


def _counted(found: Texts, counts: Tally, _params: CleanParams, tally: Tally) -> Texts:
    """Return the texts that the caller has already read, and add what it counted to the tally."""
    tally.merge(counts)
    return found


def _read_lines(
    blocks: Iterator[bytes], source: Source, params: CleanParams, tally: Tally, *, first: bool
) -> Texts:
    """The texts of whole JSON lines; `first` says whether they begin the file."""
    parts = []
    size = 0
    for block in blocks:
        parts.append(block)
        size += len(block)
        if size > POLARS_BYTES:
            break
    found = polars_texts(b"".join(parts), params) if size <= POLARS_BYTES else None
    if found is None:
        stream = itertools.chain(parts, blocks)
        found = _strings(
            "text",
            without_damage(texts_of_lines(stream, source, params, tally, first=first), tally),
        )
    return found, pl.repeat(source.name, len(found), dtype=pl.String, eager=True)


def _columns(pairs: list[tuple[str, str]]) -> Texts:
    """Texts and their files as columns. The list is emptied, so that the texts are not held
    twice."""
    columns = (
        _strings("text", (text for text, _ in pairs)),
        _strings("source", (name for _, name in pairs)),
    )
    pairs.clear()
    return columns


def _strings(name: str, values: Iterable[str]) -> pl.Series:
    return pl.Series(name, list(values), dtype=pl.String)
