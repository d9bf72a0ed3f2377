"""Chunks: units of work, small enough that several fit into memory.

Small files, and the ranges of a plain file of JSON lines, are read by the workers alone. Of other
large files the caller reads as much as shows where they may be cut between records or documents,
and the workers read the parts: from the file where it has them as they are, else from memory
(archives, other encodings). Of large parquet files they read ranges of rows, which the caller
divides by the size of the first ones. The texts of small or compressed ones are read by the caller.
Where a chunk ends depends on the input alone, and the texts do not depend on it.
"""

import codecs
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

import polars as pl

from tokenmill.data.encoding import has_plain_lines, mark_bytes, read_utf8, utf8, without_damage
from tokenmill.data.params import CleanParams
from tokenmill.data.readers import FORMATS, Rows, Table, cut_parquet, texts
from tokenmill.data.report import Tally
from tokenmill.data.sources import BLOCK_BYTES, Advance, Ends, Part, Source, opened

CHUNK_TEXTS = 1 << 16
"""The most texts of a chunk whose texts the caller reads, before small chunks are joined."""

CHUNK_FILES = 1024
"""The most small files of a chunk, or parts of files."""

POLARS_BYTES = 32 << 20
"""A chunk of more bytes than this, which long lines can cause, is read line by line to bound
memory."""

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
        chunks = (
            chunk
            for strategy, group in itertools.groupby(sources, self._strategy)
            for chunk in strategy(group)
        )
        for group in _grouped(((one, one.held, one.files) for one in chunks), self.size):
            yield _joined(group)

    def _strategy(self, source: Source) -> Callable[[Iterable[Source]], Iterator[Chunk]]:
        form = FORMATS[source.format]
        is_plain = source.compression is None
        if form.read is None:
            is_large = is_plain and 8 * source.size > self.size
            return self._row_ranges if is_large else self._texts
        if is_plain and source.size <= self.size:
            return self._small_files
        if is_plain and form.has_records_in_lines and has_plain_lines(source):
            return self._line_ranges
        return self._parts if form.cut else self._texts

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
                given = part._replace(blocks=[]) if place else part
                counts = {"first": number == 0, "encodings": tally.encodings}
                yield Chunk(partial(_read_part, source, given, place, **counts), held=size)

    def _row_ranges(self, sources: Iterable[Source]) -> Iterator[Chunk]:
        for table in map(Table, sources):
            for place in cut_parquet(table, self.params, self.size, CHUNK_TEXTS):
                yield Chunk(partial(_read_rows, table, place), table.size_of(place))

    def _texts(self, sources: Iterable[Source]) -> Iterator[Chunk]:
        found: list[tuple[str, str]] = []
        chars = 0
        tally = Tally()
        for source in sources:
            for text in texts(source, self.params, tally, self.advance):
                found.append((text, source.name))
                chars += len(text)
                if chars >= self.size or len(found) == CHUNK_TEXTS:
                    yield Chunk(partial(_counted, _columns(found), tally.take()))
                    chars = 0
        yield Chunk(partial(_counted, _columns(found), tally), held=chars)


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
    held = 0.0
    count = 0
    failure = None
    try:
        for item, size, files in items:
            if group and (held + size > most or count + files > CHUNK_FILES):
                yield group
                group = []
                held = 0.0
                count = 0
            group.append(item)
            held += size
            count += files
    except Exception as error:
        failure = error
    if group:
        yield group
    if failure:
        raise failure


def _read_files(sources: list[Source], params: CleanParams, tally: Tally) -> Texts:
    """The texts of whole files, one file after the other."""
    return _columns(
        [(text, source.name) for source in sources for text in texts(source, params, tally)]
    )


def _read_range(source: Source, begin: int, size: int, params: CleanParams, tally: Tally) -> Texts:
    """The texts of the JSON lines that begin within a range of bytes of a plain file. The last line
    is read to its end."""
    lines = utf8(_range_blocks(source, begin, size), source, tally, first=False)
    return _read_blocks(lines, source, params, tally, Ends(first=begin == 0))


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
    texts, names, _ = zip(*(read(params, tally) for read in parts), strict=True)
    return Texts(pl.concat(texts, rechunk=True), pl.concat(names, rechunk=True))


def _read_part(
    source: Source,
    part: Part,
    place: range | None,
    params: CleanParams,
    tally: Tally,
    *,
    first: bool,
    encodings: dict[str, str],
) -> Texts:
    """The texts of a part of a file: of one that the caller has read, or of the bytes at `place`.
    `encodings` names the encoding of the file, if that is not UTF-8."""
    tally.encodings.update(encodings)
    middle = part.blocks if place is None else _blocks_at(source, place)
    blocks = itertools.chain([part.before], middle, [part.behind])
    return _read_blocks(filter(None, blocks), source, params, tally, Ends(first, part.is_cut))


def _blocks_at(source: Source, place: range) -> Iterator[bytes]:
    at_once = FORMATS[source.format].read_at_once
    size = max(len(place), 1) if at_once and len(place) <= POLARS_BYTES else BLOCK_BYTES
    with opened(source) as file:
        file.seek(place.start)
        for begin in range(place.start, place.stop, size):
            yield file.read(min(size, place.stop - begin))


def _read_rows(table: Table, place: range, params: CleanParams, tally: Tally) -> Texts:
    """The texts of some rows of a parquet file."""
    rows = Rows(table, place, most=POLARS_BYTES)
    found = _of_file(table.source, without_damage(rows.texts(params, tally), tally))
    rest = partial(_read_rows, table, rows.left) if rows.left else None
    return found._replace(rest=rest)


def _counted(found: Texts, counts: Tally, _params: CleanParams, tally: Tally) -> Texts:
    """Return the texts that the caller has already read, and add what it counted to the tally."""
    tally.merge(counts)
    return found


def _read_blocks(
    blocks: Iterator[bytes], source: Source, params: CleanParams, tally: Tally, ends: Ends
) -> Texts:
    """The texts in UTF-8 blocks of a file."""
    form = FORMATS[source.format]
    assert form.read is not None
    if form.read_at_once and not ends.is_cut:
        parts = []
        size = 0
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
        blocks = itertools.chain([data], blocks)
    texts = form.read(blocks, source, params, tally, ends)
    return _of_file(source, without_damage(texts, tally))


def _of_file(source: Source, texts: Iterable[str]) -> Texts:
    found = texts if isinstance(texts, pl.Series) else pl.Series(list(texts), dtype=pl.String)
    return Texts(found, pl.repeat(source.name, len(found), dtype=pl.String, eager=True))


def _columns(pairs: list[tuple[str, str]]) -> Texts:
    """Texts and their files as columns. The list is emptied, so that the texts are not held
    twice."""
    columns = Texts(
        pl.Series([text for text, _ in pairs], dtype=pl.String),
        pl.Series([name for _, name in pairs], dtype=pl.String),
    )
    pairs.clear()
    return columns
