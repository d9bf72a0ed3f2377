"""CSV files as rows, and the texts of these rows, in bounded memory.

Python's `csv` reads the rows. `cut_csv` divides a file between rows, so that several workers read
it. Whether a line break ends a row depends on all quotes before it, so a pattern that says what
`csv` takes for a row goes through the whole file first, at a fraction of the cost of reading it.
"""

import csv
import io
import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from typing import IO, Any

from tokenmill.core.errors import UserError
from tokenmill.data.encoding import damage_handler
from tokenmill.data.params import CleanParams
from tokenmill.data.record_text import KEYS, record_texts
from tokenmill.data.report import Tally
from tokenmill.data.sources import MAX_RECORD_BYTES, Part, Source
from tokenmill.formats.chat import plain

DELIMITERS = ",;\t|"

MAX_HEADER_CHARS = 1 << 16
"""The most characters of the first line of a CSV file; a file with a longer one is refused."""

_LINE_END = rb"(?:\n|\r\n|\r(?=[^\n]))"
"""A line break; a carriage return only where what follows it is known."""

_NAMED = r'"?sep=([,;\t|])"?'
"""Matches the line before the header by which Excel names the delimiter."""

_BEFORE_HEADER = rb"(?:[\r\n]|%b%b)*+" % (_NAMED.encode(), _LINE_END)

_FIRST_LINE = re.compile(rb"%b([^\r\n]++)%b" % (_BEFORE_HEADER, _LINE_END))


def read_csv(part: Part, source: Source, params: CleanParams, tally: Tally) -> Iterator[str]:
    """The texts of a CSV file, or of a part that `cut_csv` gives."""
    wanted = KEYS if params.columns is None else params.columns
    rows = csv_rows(part.content(), source.place, tally, wanted, first=part.first)
    return record_texts(rows, source.place, params.columns, tally, first=part.first)


def csv_rows(
    blocks: Iterable[bytes],
    name: str,
    tally: Tally,
    wanted: Collection[str] = (),
    *,
    first: bool = True,
) -> Iterator[dict[str, str | None]]:
    """The rows below a header, before which blank lines may stand. The delimiter is the one that a
    line before it names, as `sep=;`, else the most frequent of DELIMITERS in its first line. An
    empty cell is null: CSV has no other sign for it.

    A row with more fields than the header is counted as dropped: its text was cut at an unquoted
    delimiter.

    Raises:
        UserError: a quote does not end, or the header has one of the `wanted` names twice.
    """
    csv.field_size_limit(MAX_RECORD_BYTES)  # the module knows no limit for one reader
    buffered = io.BufferedReader(_BlockFile(blocks), 1 << 16)
    with io.TextIOWrapper(buffered, encoding="utf-8", errors=damage_handler(), newline="") as file:
        before = 0
        delimiter = ""
        while head := file.readline(MAX_HEADER_CHARS):
            named = re.fullmatch(_NAMED, head.strip("\r\n"))
            if head.strip("\r\n") and not named:
                break
            delimiter = named[1] if named else delimiter
            before += 1
        if len(head) == MAX_HEADER_CHARS:
            raise UserError(
                f"{name}: its header has more than {MAX_HEADER_CHARS:,} characters; is it a table?"
            )
        delimiter = delimiter or max(DELIMITERS, key=head.count)
        lines = itertools.chain(itertools.repeat("\n", before), [head], _lines_of(file))
        rows = _rows_in(lines, delimiter, name, first=first)
        header = next(filter(None, rows), [])
        for column in wanted:
            if header.count(column) > 1:
                raise UserError(f"{name} has several columns {column!r}; give each its own name.")
        for row in rows:
            if len(row) > len(header):
                tally.drop("invalid_record", plain(delimiter.join(row)))
            elif row:
                cells = [cell or None for cell in row] if "" in row else row
                yield dict(zip(header, cells, strict=False))


def _lines_of(file: IO[str]) -> Iterator[str]:
    """The lines that follow.

    Raises:
        csv.Error: one is too long to be held. `csv` would take the parts of it for rows.
    """
    while line := file.readline(MAX_RECORD_BYTES):
        if len(line) == MAX_RECORD_BYTES:
            raise csv.Error(f"a line of {MAX_RECORD_BYTES:,} characters or more")
        yield line


def _rows_in(
    lines: Iterable[str], delimiter: str, name: str, *, first: bool
) -> Iterator[list[str]]:
    """The rows of these lines. `csv` takes everything behind a quote that does not end for one
    field; so another line is put behind the last one, which is a row by itself only if all end.

    Raises:
        UserError: a quote does not end, or a line or a field is too long.
    """
    is_over = False

    def one_more() -> Iterator[str]:
        nonlocal is_over
        is_over = True
        yield "."

    rows = csv.reader(itertools.chain(lines, one_more()), delimiter=delimiter)
    begin = 1
    try:
        for row in rows:
            if not is_over:
                yield row
                begin = rows.line_num + 1
            elif row != ["."]:
                raise csv.Error("a quote in the row that begins here does not end")
    except csv.Error as error:
        place = f", line {begin}" if first else ""
        raise UserError(f"{name}{place}: {error}; check the quotes there.") from None


def cut_csv(
    blocks: Iterable[bytes], source: Source, _params: CleanParams, size: int
) -> Iterator[Part]:
    """Divide a CSV file between rows. In front of each part but the first stands the header, with
    the lines before it.

    Raises:
        UserError: a row has more than MAX_RECORD_BYTES, so perhaps a quote does not end.
    """
    pattern: re.Pattern[bytes] | None = None
    header = before = b""
    parts: list[bytes] = []
    held = 0
    enough = size
    line = 1
    for block in blocks:
        parts.append(block)
        held += len(block)
        if held < enough:
            continue
        data = b"".join(parts)
        pattern = pattern or _pattern_of(data)
        cut, header = _whole_rows(data, pattern, header, source.place)
        if cut:
            yield Part([data[:cut]], before)
            before = header
        elif held > MAX_RECORD_BYTES:
            raise UserError(
                f"{source.place}, line {line}: a row of more than {MAX_RECORD_BYTES:,} bytes; "
                "check the quotes there."
            )
        line += data.count(b"\n", 0, cut)
        parts = [data[cut:]]
        held -= cut
        enough = size if cut else 2 * held
    yield Part(parts, before)


def _whole_rows(
    data: bytes, pattern: re.Pattern[bytes] | None, header: bytes, name: str
) -> tuple[int, bytes]:
    """Where the last row ends of those that are whole in these bytes, which begin with a row; 0
    where none is. And the header of the file, empty as long as it is unknown: the first part has a
    row that `csv_rows` gives, for by the first row is decided whether the file has text."""
    match = pattern.match(data) if pattern else None
    if match and (header or any(True for _ in csv_rows([data[: match.end()]], name, Tally()))):
        return match.end(), header or match[1]
    return 0, header


def _pattern_of(beginning: bytes) -> re.Pattern[bytes] | None:
    """The pattern of the rows of a file, whose first group is the first of them and the lines
    before it. None if the first line does not end in these bytes.

    As `csv` has it, a quote opens a field only where the field begins, two stand for one in it, and
    what follows the closing quote is text up to the next delimiter.
    """
    line = _FIRST_LINE.match(beginning)
    if not line:
        return None
    delimiter = ord(line[1]) if line[1] else max(DELIMITERS.encode(), key=line[2].count)
    other = rb"[^\%c\r\n]" % delimiter
    field = rb"(?>\"(?:[^\"]++|\"\")*+\"%b*+|(?!\")%b*+)" % (other, other)
    row = rb"(?>%b(?:\%c%b)*+%b)" % (field, delimiter, field, _LINE_END)
    return re.compile(rb"(%b%b)%b*+" % (_BEFORE_HEADER, row, row))


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
