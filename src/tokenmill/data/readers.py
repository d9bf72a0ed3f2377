"""The file formats that `clean` reads, each as a stream of texts in bounded memory.

To add a format, write a function that reads a file (`Reader`) and one that divides it (`Cutter`),
and register both in FORMATS under its ending: a table of docs/architecture.md has all that it
needs.
"""

import contextlib
import functools
import math
import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl
from polars.datatypes import DataTypeClass

from tokenmill.core.errors import UserError
from tokenmill.core.files import naming
from tokenmill.core.params import is_url
from tokenmill.data.csv_records import cut_csv, read_csv
from tokenmill.data.encoding import DAMAGE, decode, read_utf8, without_damage
from tokenmill.data.json_records import (
    cut_json,
    cut_json_lines,
    polars_texts,
    read_json,
    read_json_lines,
)
from tokenmill.data.params import CleanParams, Unit
from tokenmill.data.record_text import KEYS, no_text, record_texts
from tokenmill.data.report import Tally
from tokenmill.data.sources import MAX_RECORD_BYTES, Advance, Part, Source, blocks, opened
from tokenmill.formats.chat import plain
from tokenmill.formats.shards import UNREADABLE
from tokenmill.temporary import temporary_folder

Reader: TypeAlias = Callable[[Part, Source, CleanParams, Tally], Iterator[str]]
"""A function that yields the texts of a file, or of a part of it, in order and in bounded memory,
with DAMAGE where bytes are invalid. It counts in the tally what is not a document, and raises
UserError for a file that it cannot read."""

Cutter: TypeAlias = Callable[[Iterable[bytes], Source, CleanParams, int], Iterator[Part]]
"""A function that divides the UTF-8 blocks of a file into parts of about so many bytes, in bounded
memory. Read one after the other, they give the texts of the file."""


# ---- Text files: the whole file, its paragraphs or its lines.
#
# A document longer than LONGEST is cut: at the first line break beyond SHORTEST before a non-blank
# character; failing that, at the first white space; failing that, at LONGEST. Where the cuts are
# depends on the text alone, never on the blocks it comes in. A part has at least SHORTEST bytes, so
# a remainder of up to LONGEST stays whole.

SHORTEST = 1 << 20
"""The fewest bytes of a part of a document that is cut."""

LONGEST = 2 << 20
"""Bytes beyond which a document is cut."""

_UNITS: dict[Unit, tuple[re.Pattern[bytes], re.Pattern[bytes] | None]] = {
    "file": (re.compile(rb""), None),
    "paragraph": (re.compile(rb"\s*"), re.compile(rb"(?>\r\n|\r|\n)[ \t]*[\r\n]")),
    "line": (re.compile(rb"[\r\n]*"), re.compile(rb"[\r\n]")),
}
"""For each unit, the pattern that is skipped before a document, and the pattern that ends it, if
one does."""

_MARK_BYTES = DAMAGE.encode()[:2]

_LINE_BREAK = re.compile(rb"[\r\n](?=\S)")

_BLANK = re.compile(rb"\s")


def read_plain_text(
    part: Part, _source: Source, params: CleanParams, _tally: Tally
) -> Iterator[str]:
    """The texts of a plain text file. Each one is a document, so nothing is counted as dropped."""
    found = documents(part.content(), params.text_file, is_cut=part.is_cut)
    return (plain(decode(data)) for data in found)


def plain_texts(data: bytes, params: CleanParams) -> pl.Series | None:
    """The documents in UTF-8 text, divided all at once; None if a byte is invalid, or a mark may be
    in the text."""
    # No mark is in text without the beginning that all of them share
    if _MARK_BYTES in data:
        return None
    found = _divided_at_once(data, params.text_file)
    if found is None:
        found = list(documents([data], params.text_file))
    try:
        return pl.Series("text", found, dtype=pl.Binary).cast(pl.String)
    except pl.exceptions.PolarsError:
        return None


_BREAKS = {
    "paragraph": re.compile(rb"\n[ \t]*\n\s*"),
    "line": re.compile(rb"\n[\n]*"),
}
"""For each unit, what lies between two documents where every line break is `\\n`. It begins with
one character, so that a search is ten times as fast."""


def _divided_at_once(data: bytes, unit: Unit) -> list[bytes] | None:
    """The paragraphs or lines of a text; None if one may be cut, or the text has more than plain
    line breaks."""
    if unit == "file" or b"\r" in data:
        return None
    parts = _BREAKS[unit].split(data.lstrip() if unit == "paragraph" else data)
    parts[-1] = parts[-1].rstrip()  # behind it is no separator
    longest = max(map(len, parts))
    if longest > SHORTEST or len(data) - sum(map(len, parts)) > SHORTEST:  # together below LONGEST
        return None
    return list(filter(None, parts))


def cut_plain_text(
    blocks: Iterable[bytes], _source: Source, params: CleanParams, size: int
) -> Iterator[Part]:
    """Divide a plain text file into parts whose documents are those of the file.

    A part ends behind a separator: there no document goes on, wherever documents begin before.
    Where no separator is near, or the unit has none, a part ends with a document that is cut.
    """
    unit = params.text_file
    separator = _UNITS[unit][1]
    parts: list[bytes] = []
    held = 0
    yielded = False
    for block in blocks:
        parts.append(block)
        held += len(block)
        if held < size:
            continue
        match = separator.search(block) if separator else None
        if not match and separator and held < size + 2 * LONGEST:
            continue
        if not match:
            parts = [b"".join(parts)]
        last = parts[-1]
        cut = match.end() if match else _complete(last, unit)[1]
        if cut:
            yield Part([*parts[:-1], last[:cut]], is_cut=not match)
            yielded = True
            parts = [last[cut:]]
            held = len(parts[0])
    if held or not yielded:
        yield Part(parts)


def documents(blocks: Iterable[bytes], unit: Unit, *, is_cut: bool = False) -> Iterator[bytes]:
    r"""The documents in UTF-8 text that comes in blocks. Empty ones are skipped, but an empty file
    is one document. `is_cut` is that of the text as a part.

    Example:
        >>> list(documents([b"To be,\nor no", b"t to be\n"], "line"))
        [b'To be,', b'or not to be']
    """
    buffer = b""
    found_any = False
    for block in blocks:
        buffer += block
        spans, end = _complete(buffer, unit)
        yield from (buffer[begin:end] for begin, end in spans)
        found_any = found_any or bool(spans)
        buffer = buffer[end:]
    if is_cut:
        yield from _cut_to_the_end(buffer, unit)
        return
    rest = buffer if unit == "file" else buffer.rstrip()
    if rest or (unit == "file" and not found_any):
        yield rest


def _complete(buffer: bytes, unit: Unit) -> tuple[list[tuple[int, int]], int]:
    """Where the documents that are complete in the buffer begin and end; and where the next one
    begins."""
    skipped, separator = _UNITS[unit]
    spans = []
    begin = _end(skipped, buffer, 0)
    while True:
        horizon = begin + LONGEST + 2  # no byte beyond this may decide, or the blocks would matter
        if separator and (match := separator.search(buffer, begin, horizon)):
            end, behind = match.span()
        elif len(buffer) > horizon:
            end = behind = _cut(buffer, begin + SHORTEST, begin + LONGEST)
        else:
            return spans, begin
        spans.append((begin, end))
        begin = _end(skipped, buffer, behind)


def _cut_to_the_end(buffer: bytes, unit: Unit) -> Iterator[bytes]:
    """The documents of a buffer at whose end one is cut. What follows counts as a letter: where it
    is another character, no cut depends on it."""
    skipped = _UNITS[unit][0]
    text = buffer + b"x"
    begin = 0
    while begin < len(buffer):
        cut = _cut(text, begin + SHORTEST, min(begin + LONGEST, len(buffer)))
        yield buffer[begin:cut]
        begin = _end(skipped, text, cut)


def _end(pattern: re.Pattern[bytes], buffer: bytes, start: int) -> int:
    match = pattern.match(buffer, start)
    return match.end() if match else start


def _cut(buffer: bytes, low: int, high: int) -> int:
    """The place between `low` and `high` at which to cut. No byte beyond `high` decides it."""
    for pattern in (_LINE_BREAK, _BLANK):
        if match := pattern.search(buffer, low, high + 1):
            return match.end()
    cut = high
    while cut > high - 3 and buffer[cut] & 0xC0 == 0x80:  # within a UTF-8 character
        cut -= 1
    return cut


# ---- Tables.

PARQUET_ROWS = 1024
"""The most rows of a parquet file that are given at a time. No more are decoded first."""

FIRST_BYTES = 4 << 20
"""The rows that are decoded first have about so many bytes on the disk: of books there are few."""

PARQUET_BYTES = 8 << 20
"""About so many bytes of a parquet file are decoded at a time after them."""

MOST_TIMES_ROWS = 16
"""How many times the rows are decoded at most that were decoded before, however short these are."""


class Table:
    """A parquet file as polars can open it: itself, or a copy that goes with this object.

    A compressed file is unpacked, because parquet is read from its end. An object is copied: polars
    could read it where it is, but would look for keys of its own, in other places. Another process,
    to which this is sent, makes a copy of its own.
    """

    def __init__(self, source: Source):
        self.source = source

    @functools.cached_property
    def path(self) -> str:
        """The path of the file or of its copy, which is made when it is asked for."""
        source = self.source
        if source.compression is None and not is_url(source.location):
            return source.location
        stack = contextlib.ExitStack()
        weakref.finalize(self, stack.close)  # also at the end of the process
        path = stack.enter_context(temporary_folder()) / "table.parquet"
        with naming(path), path.open("wb") as file:
            file.writelines(blocks(source))
        return str(path)

    @functools.cached_property
    def rows(self) -> int:
        """How many rows it has, by its footer."""
        with self.readable():
            return pl.scan_parquet(self.path, glob=False).select(pl.len()).collect().item()

    @property
    def first_rows(self) -> int:
        """The number of rows that are decoded while nothing is known of their size in memory."""
        return max(1, min(PARQUET_ROWS, FIRST_BYTES * self.rows // max(1, self.source.size)))

    def size_of(self, place: range) -> int:
        """The bytes on disk that count as read with the rows at `place`."""
        before, done = (self.source.size * row // self.rows for row in (place.start, place.stop))
        return done - before

    @contextlib.contextmanager
    def readable(self) -> Iterator[None]:
        """While it is read, refuse it in one sentence if it changes or is no parquet file."""
        is_copy = self.path != self.source.location
        try:
            with contextlib.nullcontext() if is_copy else opened(self.source):
                try:
                    yield
                except UNREADABLE as error:  # a panic is none of the errors that `opened` looks at
                    raise self._unreadable(error) from None
        except OSError as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: BaseException) -> UserError:
        reason = " ".join(str(error).split())[:160]
        return UserError(
            f"{self.source.place} is not a readable parquet file ({reason}); get it again, or "
            "write it without columns of rare types."
        )

    def batches(self, columns: list[str] | None, place: range) -> Iterator[pl.DataFrame]:
        """The rows at `place`, at most PARQUET_ROWS at a time, with the columns that may hold text.
        Read as one stream, polars would hold as many rows as it decodes before they are taken. Of
        lists it decodes a whole row group each time, so a range of the rows is taken at once."""
        with self.readable():
            frame = pl.scan_parquet(self.path, glob=False)
            schema = frame.collect_schema()
            wanted = [name for name in schema if name in (KEYS if columns is None else columns)]
            if not wanted:
                raise no_text(self.source.place, schema.names(), columns)
            frame = frame.select(_bounded(wanted, schema))
            is_cut = len(place) < self.rows
            has_lists = any(isinstance(schema[name], pl.List) for name in wanted)
            rows = len(place) if is_cut and has_lists else self.first_rows
            begin, end = place.start, place.stop
            while begin < end:
                many = min(rows, end - begin)
                found = frame.slice(begin, many).collect()
                yield from found.iter_slices(PARQUET_ROWS)
                begin += many
                if len(found) < many:  # another file by now
                    break
                fitting = PARQUET_BYTES * many // max(1, int(found.estimated_size()))
                rows = max(1, min(fitting, MOST_TIMES_ROWS * many))

    def __reduce__(self) -> tuple[Any, ...]:
        return _table_here, (self.source,)


@functools.lru_cache(maxsize=1)
def _table_here(source: Source) -> Table:
    """The one table that this process has of a file, however many of its parts are sent here."""
    return Table(source)


@dataclass
class Rows:
    """The rows of a parquet file at a place, up to about `most` bytes."""

    table: Table
    place: range
    most: float = math.inf
    left: range = range(0)
    """The rows that were left because those before them had as many bytes."""

    def texts(
        self, params: CleanParams, tally: Tally, advance: Advance = lambda _: None
    ) -> Iterator[str]:
        """Their texts. A row with a cell of more than MAX_RECORD_BYTES is counted as dropped."""
        rows = self._rows(params.columns, tally, advance)
        first = self.place.start == 0
        return record_texts(rows, self.table.source.place, params.columns, tally, first=first)

    def _rows(
        self, columns: list[str] | None, tally: Tally, advance: Advance
    ) -> Iterator[dict[str, Any]]:
        begin, end = self.place.start, self.place.stop
        held = 0
        for batch in self.table.batches(columns, self.place):
            done = begin + len(batch)
            advance(self.table.size_of(range(begin, done)))
            begin = done
            held += int(batch.estimated_size())
            for row in batch.iter_rows(named=True):
                if row.pop(_TOO_LONG):
                    tally.drop("no_text", f"a cell of more than {MAX_RECORD_BYTES:,} bytes")
                else:
                    yield row
            if held >= self.most:
                self.left = range(begin, end)
                break


def cut_parquet(table: Table, params: CleanParams, size: int, longest: int) -> Iterator[range]:
    """Divide the rows of a file into ranges of about `size` bytes, and of `longest` rows at most.
    Only the first rows are read; where later ones hold more, a range is too large."""
    count = table.rows
    for first in table.batches(params.columns, range(min(count, table.first_rows))):
        fitting = size * len(first) // max(1, int(first.estimated_size()))
        rows = max(1, min(fitting, longest))
        yield from (range(begin, min(begin + rows, count)) for begin in range(0, count, rows))


_TOO_LONG = "\0too long"
"""The name of the added column that says whether a row is too long; no table has a column of this
name."""


def _bounded(names: list[str], schema: pl.Schema) -> list[pl.Expr]:
    """The columns, in which texts over MAX_RECORD_BYTES are null because they would be held several
    times in memory, and times beyond Python's years; and the column _TOO_LONG: whether the row had
    such a text."""
    cells, too_long = list[pl.Expr](), [pl.lit(False)]
    for name in names:
        cell = pl.col(name)
        if schema[name] in (pl.String, pl.Binary):
            too_long.append(cell.cast(pl.Binary).bin.size() > MAX_RECORD_BYTES)
            cells.append(pl.when(~too_long[-1]).then(cell).alias(name))
        else:
            cells.append(_without_far_times(cell, schema[name]))
    return [*cells, pl.any_horizontal(too_long).alias(_TOO_LONG)]


_UNITS_PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def _without_far_times(column: pl.Expr, dtype: pl.DataType | DataTypeClass) -> pl.Expr:
    """The column, in which dates and times outside the years 1 to 9999 are null, within structs and
    lists too: Python has no values for them. So are durations as long as from 1970 to there."""
    if isinstance(dtype, pl.Struct) and dtype.fields:
        return column.struct.with_fields(
            _without_far_times(pl.field(field.name), field.dtype) for field in dtype.fields
        )
    if isinstance(dtype, pl.List):
        return column.list.eval(_without_far_times(pl.element(), dtype.inner))
    if isinstance(dtype, pl.Array):
        return column.arr.eval(_without_far_times(pl.element(), dtype.inner))
    if not isinstance(dtype, pl.Date | pl.Datetime | pl.Duration):
        return column
    days = column.cast(pl.Int64) // _UNITS_PER_DAY.get(getattr(dtype, "time_unit", ""), 1)
    zone = getattr(dtype, "time_zone", None)  # whose clock may be in another year than that of UTC
    closed = "both" if zone in (None, "UTC") else "none"
    return pl.when(days.is_between(-719_162, 2_932_896, closed)).then(column)


@dataclass(frozen=True)
class Format:
    """The way to read files with one ending."""

    read: Reader | None
    """The reader of its text. None: it is a table in binary, which `Rows` reads."""
    cut: Cutter | None
    """The function that divides its text; None for a table."""
    read_at_once: Callable[[bytes, CleanParams], pl.Series | None] | None = None
    """A faster reader of a part of a file, which gives the same texts or None."""
    has_records_in_lines: bool = False
    """Whether each line is a record, so that a file can be read from any line on."""


_TEXT = Format(read_plain_text, cut_plain_text, plain_texts)

_LINES = Format(read_json_lines, cut_json_lines, polars_texts, has_records_in_lines=True)

FORMATS: dict[str, Format] = {
    ".txt": _TEXT,
    ".md": _TEXT,
    ".jsonl": _LINES,
    ".ndjson": _LINES,
    ".json": Format(read_json, cut_json),
    ".csv": Format(read_csv, cut_csv),
    ".parquet": Format(None, None),
}


def texts(
    source: Source, params: CleanParams, tally: Tally, advance: Advance = lambda _: None
) -> Iterator[str]:
    """The documents of one file as valid Unicode, in order. What is not a document is counted in
    `tally`."""
    read = FORMATS[source.format].read
    if read is None:
        table = Table(source)
        found = Rows(table, range(table.rows)).texts(params, tally, advance)
    else:
        found = read(Part(read_utf8(source, tally, advance)), source, params, tally)
    return without_damage(found, tally)
