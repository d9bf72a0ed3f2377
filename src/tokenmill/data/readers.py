"""The file formats that `clean` reads, each as a stream of texts in bounded memory.

To add a format, write a function from a source to its texts (`Reader`), and register it in FORMATS
under its ending.
"""

import csv
import io
import itertools
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from tokenmill.core.errors import UserError
from tokenmill.data.encoding import damage_handler, decode, read_utf8, without_damage
from tokenmill.data.json_records import read_json, read_json_lines
from tokenmill.data.params import CleanParams, Unit
from tokenmill.data.record_text import KEYS, no_text, record_texts
from tokenmill.data.report import Tally
from tokenmill.data.sources import MAX_RECORD_BYTES, Advance, Source, blocks, not_permitted
from tokenmill.formats.chat import plain

Reader: TypeAlias = Callable[[Source, CleanParams, Tally, Advance], Iterator[str]]
"""A function that yields the texts of a file in order and in bounded memory, with DAMAGE where
bytes are invalid. It counts in the tally what is not a document, and tells `Advance` the bytes read
from disk. It raises UserError for a file that it cannot read."""


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

_UNITS: dict[Unit, tuple[re.Pattern[bytes], re.Pattern[bytes]]] = {
    "file": (re.compile(rb""), re.compile(rb"(?!)")),
    "paragraph": (re.compile(rb"\s*"), re.compile(rb"(?>\r\n|\r|\n)[ \t]*[\r\n]")),
    "line": (re.compile(rb"[\r\n]*"), re.compile(rb"[\r\n]")),
}
"""For each unit, the pattern that is skipped before a document, and the pattern that ends it."""

_LINE_BREAK = re.compile(rb"[\r\n](?=\S)")

_BLANK = re.compile(rb"\s")


def read_plain_text(
    source: Source, params: CleanParams, tally: Tally, advance: Advance
) -> Iterator[str]:
    """The texts of a plain text file. Each one is a document, so nothing is counted as dropped."""
    found = documents(read_utf8(source, tally, advance), params.text_file)
    return (plain(decode(data)) for data in found)


def documents(
    blocks: Iterable[bytes], unit: Unit, *, shortest: int = SHORTEST, longest: int = LONGEST
) -> Iterator[bytes]:
    r"""The documents in UTF-8 text that comes in blocks. Empty ones are skipped, but an empty file
    is one document.

    Example:
        >>> list(documents([b"To be,\nor no", b"t to be\n"], "line"))
        [b'To be,', b'or not to be']
    """
    skipped, separator = _UNITS[unit]
    buffer = b""
    found_any = False
    for block in blocks:
        buffer += block
        begin = _end(skipped, buffer, 0)
        while (ends := _next(buffer, begin, separator, shortest, longest)) is not None:
            yield buffer[begin : ends[0]]
            found_any = True
            begin = _end(skipped, buffer, ends[1])
        buffer = buffer[begin:]
    rest = buffer if unit == "file" else buffer.rstrip()
    if rest or (unit == "file" and not found_any):
        yield rest


def _end(pattern: re.Pattern[bytes], buffer: bytes, start: int) -> int:
    match = pattern.match(buffer, start)
    return match.end() if match else start


def _next(
    buffer: bytes, begin: int, separator: re.Pattern[bytes], shortest: int, longest: int
) -> tuple[int, int] | None:
    """Where the document at `begin` ends, and where the next one begins; None if the buffer is too
    short to decide."""
    horizon = begin + longest + 2  # no byte beyond this may decide, or the blocks would matter
    if match := separator.search(buffer, begin, horizon):
        return match.span()
    if len(buffer) <= horizon:
        return None
    cut = _cut(buffer, begin + shortest, begin + longest)
    return cut, cut


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

MAX_HEADER_CHARS = 1 << 16
"""The most characters of the header of a CSV file; a file with a longer one is refused."""

PARQUET_ROWS = 1024
"""The number of rows of a parquet file that are read at a time."""


def read_csv(source: Source, params: CleanParams, tally: Tally, advance: Advance) -> Iterator[str]:
    """The texts of a CSV file."""
    rows = csv_rows(read_utf8(source, tally, advance), str(source.path), tally)
    return record_texts(rows, source.path, params.columns, tally)


def csv_rows(blocks: Iterable[bytes], name: str, tally: Tally) -> Iterator[dict[str, str]]:
    """The rows below a header. The delimiter is the most frequent of `,` `;` tab `|` in the header.

    A row with more fields than the header is counted as dropped: its text was cut at an unquoted
    delimiter.

    Raises:
        UserError: a quote does not end.
    """
    csv.field_size_limit(MAX_RECORD_BYTES)  # the module knows no limit for one reader
    buffered = io.BufferedReader(_BlockFile(blocks), 1 << 16)
    with io.TextIOWrapper(buffered, encoding="utf-8", errors=damage_handler(), newline="") as file:
        head = file.readline(MAX_HEADER_CHARS)
        if len(head) == MAX_HEADER_CHARS:
            raise UserError(
                f"{name}: its header has more than {MAX_HEADER_CHARS:,} characters; is it a table?"
            )
        delimiter = max(",;\t|", key=head.count)
        lines = itertools.takewhile(bool, map(file.readline, itertools.repeat(MAX_RECORD_BYTES)))
        rows = csv.reader(itertools.chain([head], lines), delimiter=delimiter)
        try:
            header = next(rows, [])
            for row in rows:
                if len(row) > len(header):
                    tally.drop("invalid_record", plain(delimiter.join(row)))
                elif row:
                    yield dict(zip(header, row, strict=False))
        except csv.Error as error:
            raise UserError(
                f"{name}, line {rows.line_num}: {error}; check the quotes there."
            ) from None


class _BlockFile(io.RawIOBase):
    """A file whose content is blocks of bytes, for the CSV reader."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = filter(None, blocks)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or memoryview(next(self._blocks, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def read_parquet(
    source: Source, params: CleanParams, tally: Tally, advance: Advance
) -> Iterator[str]:
    """The texts of a parquet file."""
    rows = parquet_rows(source, params.columns, tally, advance)
    return record_texts(rows, source.path, params.columns, tally)


def parquet_rows(
    source: Source, columns: list[str] | None, tally: Tally, advance: Advance
) -> Iterator[dict[str, Any]]:
    """The rows of a parquet file, with the columns that may hold text.

    A row with a cell of more than MAX_RECORD_BYTES is counted as dropped. A compressed file is
    unpacked to a temporary file first, because parquet is read from its end.
    """
    if source.compression is None:
        yield from _rows(source.path, source, columns, tally)
        advance(source.size)
        return
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder, "unpacked.parquet")
        with unpacked.open("wb") as file:
            for block in blocks(source, advance):
                file.write(block)
        yield from _rows(unpacked, source, columns, tally)


_TOO_LONG = "\0too long"
"""The name of the added column that says whether a row is too long; no table has a column of this
name."""


def _rows(
    path: Path, source: Source, columns: list[str] | None, tally: Tally
) -> Iterator[dict[str, Any]]:
    try:
        table = pl.scan_parquet(path, glob=False)
        schema = table.collect_schema()
        wanted = [name for name in schema if name in (KEYS if columns is None else columns)]
        if not wanted:
            raise no_text(source.path, schema.names(), columns)
        for batch in table.select(_bounded(wanted, schema)).collect_batches(
            chunk_size=PARQUET_ROWS, maintain_order=True
        ):
            for row in batch.iter_rows(named=True):
                if row.pop(_TOO_LONG):
                    tally.drop("no_text", f"a cell of more than {MAX_RECORD_BYTES:,} bytes")
                else:
                    yield row
    except PermissionError:
        raise not_permitted(source) from None
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = " ".join(str(error).split())[:160]
        raise UserError(
            f"{source.path} is not a readable parquet file ({reason}); get it again."
        ) from None


def _bounded(names: list[str], schema: pl.Schema) -> list[pl.Expr]:
    """The columns, in which texts over MAX_RECORD_BYTES are null because they would be held several
    times in memory; and the column _TOO_LONG: whether the row had one."""
    fits = {
        name: pl.col(name).str.len_bytes() <= MAX_RECORD_BYTES
        for name in names
        if schema[name] == pl.String
    }
    cells = [
        pl.when(fits[name]).then(pl.col(name)).alias(name) if name in fits else pl.col(name)
        for name in names
    ]
    too_long = pl.any_horizontal(pl.lit(False), *(~fit for fit in fits.values()))
    return [*cells, too_long.alias(_TOO_LONG)]


@dataclass(frozen=True)
class Format:
    """The way to read files with one ending."""

    read: Reader
    compressed: bool = False
    """Whether the format compresses its content. Then the size on disk does not bound the memory
    that reading takes."""


FORMATS: dict[str, Format] = {
    ".txt": Format(read_plain_text),
    ".md": Format(read_plain_text),
    ".jsonl": Format(read_json_lines),
    ".json": Format(read_json),
    ".csv": Format(read_csv),
    ".parquet": Format(read_parquet, compressed=True),
}


def texts(
    source: Source, params: CleanParams, tally: Tally, advance: Advance = lambda _: None
) -> Iterator[str]:
    """The documents of one file as valid Unicode, in order. What is not a document is counted in
    `tally`."""
    return without_damage(FORMATS[source.format].read(source, params, tally, advance), tally)
