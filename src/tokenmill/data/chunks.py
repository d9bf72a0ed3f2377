"""Chunks: units of work, small enough that several fit into memory.

Small files, and the ranges of a plain file of JSON lines, are read by the workers alone. Of other
large files the caller reads as much as shows where they may be cut between records or documents,
and the workers read the parts: from the file where it has them as they are, else from memory
(archives, other encodings). Of large parquet files they read ranges of rows, which the caller
divides by the size of the first ones. Where a chunk ends depends on the input alone, and the texts
do not depend on it.
"""

import codecs
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

import polars as pl

from tokenmill.data.encoding import has_plain_lines, mark_bytes, read_utf8, utf8, without_damage
from tokenmill.data.params import CleanParams
from tokenmill.data.readers import FORMATS, Rows, Table, cut_parquet, texts
from tokenmill.data.report import Tally
from tokenmill.data.sources import BLOCK_BYTES, Advance, Part, Source, opened

CHUNK_ROWS = 1 << 16
"""The most rows of a large table in a chunk."""

CHUNK_FILES = 1024
"""The most small files of a chunk, or parts of files."""

POLARS_BYTES = 32 << 20
"""A chunk of more bytes than this, which long lines can cause, is read line by line to bound
memory. Of tables about so much is read at once, and then the rest."""

TABLE_GROWS = 8
"""How many times its size on disk a table is expected to have in memory, before it is looked at."""

Item = TypeVar("Item")


class Texts(NamedTuple):
    """What is read of a part of the input."""

    texts: pl.Series
    """String."""
    names: pl.Series
    """For each text the name of the file that it comes from."""
    rest: "Read | None" = None
    """Reads the texts that follow, if there were too many at once."""


Read: TypeAlias = Callable[[CleanParams, Tally], Texts]
"""A function that reads texts. It can be pickled."""


@dataclass(frozen=True)
class Chunk:
    """A part of the input that a worker reads."""

    read: Read
    size: int = 0
    """Bytes on disk that count as read when the chunk is done; 0 if the caller has read them
    already."""
    held: float = math.inf
    """About the bytes of its text. Small chunks that follow each other are joined, unless this is
    infinite."""
    files: int = 1
    """How many files or parts of files are in it, as far as they count for CHUNK_FILES."""


@dataclass(frozen=True)
class Planner:
    """Cuts the input into chunks of about the same size."""

    params: CleanParams
    advance: Advance
    """Is told the bytes on disk that are already read here."""
    size: int
    """About the bytes of a chunk; a single record may be longer."""

    def chunks(self, sources: Iterable[Source]) -> Iterator[Chunk]:
        """The chunks of all sources, in their order."""
        strategies = itertools.groupby(sources, self._strategy)
        chunks = itertools.chain.from_iterable(cut(group) for cut, group in strategies)
        for group in _grouped(((one, one.held, one.files) for one in chunks), self.size):
            yield _joined(group)

    def _strategy(self, source: Source) -> Callable[[Iterable[Source]], Iterator[Chunk]]:
        form = FORMATS[source.format]
        is_plain = source.compression is None
        if form.cut is None:
            return self._tables
        if is_plain and source.size <= self.size:
            return self._small_files
        if is_plain and form.has_records_in_lines and has_plain_lines(source):
            return self._line_ranges
        return self._parts

    def _small_files(self, sources: Iterable[Source]) -> Iterator[Chunk]:
        for group in _grouped(((one, one.size, 1) for one in sources), self.size):
            size = sum(one.size for one in group)
            yield Chunk(partial(_read_files, group), size, held=size, files=len(group))

    def _line_ranges(self, sources: Iterable[Source]) -> Iterator[Chunk]:
        for source in sources:
            for begin in range(0, source.size, self.size):
                size = min(self.size, source.size - begin)
                yield Chunk(partial(_read_range, source, begin, size), size)

    def _parts(self, sources: Iterable[Source]) -> Iterator[Chunk]:
        for source in sources:
            cut = FORMATS[source.format].cut
            assert cut is not None
            tally = Tally()
            stream = read_utf8(source, tally, self.advance)
            begin = 0 if source.compression else mark_bytes(source)
            for number, part in enumerate(cut(stream, source, self.params, self.size)):
                place = None
                size = sum(map(len, part.blocks))
                # Until another encoding is found, the file has the bytes of the parts
                if source.compression is None and not tally.encodings:
                    place = range(begin, begin + size)
                    begin = place.stop
                given = part._replace(first=number == 0, blocks=[] if place else part.blocks)
                read = partial(_read_part, source, given, place, encodings=tally.encodings)
                yield Chunk(read, held=size)

    def _tables(self, sources: Iterable[Source]) -> Iterator[Chunk]:
        for table in map(Table, sources):
            size = table.source.size
            if TABLE_GROWS * size <= self.size:
                yield Chunk(partial(_read_rows, table, None), size, held=TABLE_GROWS * size)
                continue
            for place in cut_parquet(table, self.params, self.size, CHUNK_ROWS):
                yield Chunk(partial(_read_rows, table, place), table.size_of(place))


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    """One chunk of small ones."""
    if len(chunks) == 1:
        return chunks[0]
    reads = [chunk.read for chunk in chunks]
    return Chunk(partial(_read_parts, reads), sum(chunk.size for chunk in chunks))


def _grouped(items: Iterable[tuple[Item, float, int]], most: int) -> Iterator[list[Item]]:
    """Items that follow each other, each given with its bytes and its number of files: as many as
    have `most` bytes and CHUNK_FILES files. An error of `items` is raised after the items before
    it."""
    group: list[Item] = []
    held = count = 0
    try:
        for item, size, files in items:
            if group and (held + size > most or count + files > CHUNK_FILES):
                yield group
                group = []
                held = count = 0
            group.append(item)
            held += size
            count += files
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group


def _read_files(sources: list[Source], params: CleanParams, tally: Tally) -> Texts:
    """The texts of whole files, one file after the other."""
    found = [(text, source.name) for source in sources for text in texts(source, params, tally)]
    return Texts(
        pl.Series([text for text, _ in found], dtype=pl.String),
        pl.Series([name for _, name in found], dtype=pl.String),
    )


def _read_range(source: Source, begin: int, size: int, params: CleanParams, tally: Tally) -> Texts:
    """The texts of the JSON lines that begin within a range of bytes of a plain file. The last line
    is read to its end."""
    lines = utf8(_range_blocks(source, begin, size), source, tally, first=False)
    return _read_text(Part(lines, first=begin == 0), source, params, tally)


def _range_blocks(source: Source, begin: int, size: int) -> Iterator[bytes]:
    with opened(source) as file:
        if begin:
            file.seek(begin - 1)
            # A line that begins at the end belongs to the next chunk
            skipped = file.readline(size)
            if not skipped.endswith(b"\n"):
                return
            block = file.read(size + 1 - len(skipped))
        else:
            # After a mark alone, a line begins in this chunk that no later one takes
            block = file.read(size).removeprefix(codecs.BOM_UTF8) or file.read(1)
        while block and not block.endswith(b"\n"):
            yield block
            block = file.read(BLOCK_BYTES)
            block = block[: block.find(b"\n") + 1] or block
        yield block


def _read_parts(parts: list[Read], params: CleanParams, tally: Tally) -> Texts:
    """The texts of parts of files, one part after the other."""
    texts: list[pl.Series] = []
    names: list[pl.Series] = []
    left = deque(parts)
    held = 0
    while left and held < POLARS_BYTES:
        found = left.popleft()(params, tally)
        texts.append(found.texts)
        names.append(found.names)
        held += int(found.texts.estimated_size())
        if found.rest:
            left.appendleft(found.rest)
    rest = partial(_read_parts, list(left)) if left else None
    return Texts(pl.concat(texts, rechunk=True), pl.concat(names, rechunk=True), rest)


def _read_part(
    source: Source,
    part: Part,
    place: range | None,
    params: CleanParams,
    tally: Tally,
    *,
    encodings: dict[str, str],
) -> Texts:
    """The texts of a part of a file: of one that the caller has read, or of the bytes at `place`.
    `encodings` names the encoding of the file, if that is not UTF-8."""
    tally.encodings.update(encodings)
    if place is not None:
        part = part._replace(blocks=_blocks_at(source, place))
    return _read_text(part, source, params, tally)


def _blocks_at(source: Source, place: range) -> Iterator[bytes]:
    at_once = FORMATS[source.format].read_at_once
    size = max(len(place), 1) if at_once and len(place) <= POLARS_BYTES else BLOCK_BYTES
    with opened(source) as file:
        file.seek(place.start)
        for begin in range(place.start, place.stop, size):
            yield file.read(min(size, place.stop - begin))


def _read_rows(table: Table, place: range | None, params: CleanParams, tally: Tally) -> Texts:
    """The texts of some rows of a parquet file, or of all."""
    rows = Rows(table, range(table.rows) if place is None else place, most=POLARS_BYTES)
    found = _of_file(table.source, without_damage(rows.texts(params, tally), tally))
    rest = partial(_read_rows, table, rows.left) if rows.left else None
    return found._replace(rest=rest)


def _read_text(part: Part, source: Source, params: CleanParams, tally: Tally) -> Texts:
    """The texts of a part of a text file."""
    form = FORMATS[source.format]
    assert form.read is not None
    if form.read_at_once and not part.is_cut:
        parts = []
        size = 0
        blocks = part.content()
        for block in blocks:
            parts.append(block)
            size += len(block)
            if size > POLARS_BYTES:
                break
        data = b"".join(parts)
        del parts
        found = form.read_at_once(data, params) if size <= POLARS_BYTES else None
        if found is not None:
            return _of_file(source, found)
        part = Part(itertools.chain([data], blocks), first=part.first)
    texts = form.read(part, source, params, tally)
    return _of_file(source, without_damage(texts, tally))


def _of_file(source: Source, texts: Iterable[str]) -> Texts:
    found = texts if isinstance(texts, pl.Series) else pl.Series(list(texts), dtype=pl.String)
    return Texts(found, pl.repeat(source.name, len(found), dtype=pl.String, eager=True))
