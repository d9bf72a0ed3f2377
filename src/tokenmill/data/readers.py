"""The file formats that `clean` reads, each as a stream of texts in bounded memory.

To add a format, write a function from a source to its texts (`Reader`), and register it in FORMATS under its ending.
"""

import csv
import io
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

import ijson
import numpy as np
import polars as pl

from tokenmill.core.errors import UserError
from tokenmill.data.encoding import damage_handler, mark_json_stream_damage, read_utf8, replace_damage
from tokenmill.data.json_lines import read_json_lines
from tokenmill.data.params import CleanParams
from tokenmill.data.plain_text import read_plain_text
from tokenmill.data.record_text import KEYS, no_text, record_texts
from tokenmill.data.report import Tally
from tokenmill.data.sources import MAX_RECORD_BYTES, Advance, Source, blocks, not_permitted

Reader: TypeAlias = Callable[[Source, CleanParams, Tally, Advance], Iterator[str]]
"""Yields the texts of a file in bounded memory, in order, with DAMAGE where bytes are invalid. It counts in the tally
what is not a document, tells `Advance` the bytes read from disk, and raises UserError for a file it cannot read."""


MAX_HEADER_CHARS = 1 << 16
"""A CSV file with a longer header is refused."""

MAX_DEPTH = 200
"""A JSON file that is nested deeper is refused: the parser would take the square of the depth in memory."""

PARQUET_ROWS = 1024
"""Rows of a parquet file read at a time."""


def read_json(source: Source, params: CleanParams, tally: Tally, advance: Advance) -> Iterator[str]:
    """The texts of a JSON file."""
    records = json_values(read_utf8(source, tally, advance), str(source.path))
    return record_texts(records, source.path, params.columns, tally)


def read_csv(source: Source, params: CleanParams, tally: Tally, advance: Advance) -> Iterator[str]:
    """The texts of a CSV file."""
    rows = csv_rows(read_utf8(source, tally, advance), str(source.path), tally)
    return record_texts(rows, source.path, params.columns, tally)


def read_parquet(source: Source, params: CleanParams, tally: Tally, advance: Advance) -> Iterator[str]:
    """The texts of a parquet file."""
    return record_texts(parquet_rows(source, params.columns, advance), source.path, params.columns, tally)


def json_values(blocks: Iterable[bytes], name: str) -> Iterator[Any]:
    """The elements of a JSON array, or the JSON objects that follow one another.

    Raises:
        UserError: the file is not JSON.
    """
    stream = mark_json_stream_damage(bounded_json(blocks, name))
    head = next(filter(None, map(bytes.lstrip, stream)), b"")
    if not head:
        return
    prefix = "item" if head.startswith(b"[") else ""
    file = io.BufferedReader(BlockFile(itertools.chain([head], stream)), 1 << 16)
    try:
        yield from ijson.items(cast("IO[bytes]", file), prefix, multiple_values=True, use_float=True)
    except (ijson.JSONError, ValueError) as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise UserError(f"{name} is not valid JSON ({' '.join(text.split())[:120]}); fix it or get it again.") from None


def bounded_json(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Pass the blocks of a JSON file on.

    Raises:
        UserError: it is nested deeper than MAX_DEPTH, or a value in it is longer than MAX_RECORD_BYTES.
    """
    depth, quoted, held, rest = 0, 0, 0, b""
    for block in blocks:
        data = (rest + block).replace(rb"\\", b"")  # now a backslash before a quote escapes it
        rest = b"\\" if data.endswith(b"\\") else b""
        parts = data.replace(rb"\"", b"").translate(None, _NO_STRUCTURE).split(b'"')
        brackets = np.frombuffer(b"".join(parts[quoted::2]), np.uint8)
        levels = depth + np.cumsum(np.where((brackets == ord("[")) | (brackets == ord("{")), 1, -1))
        quoted = (quoted + len(parts) - 1) % 2
        is_between = levels.min(initial=depth) <= 1 and len(parts) + len(brackets) > 1
        held = 0 if is_between else held + len(block)
        depth = int(levels[-1]) if len(levels) else depth
        if levels.max(initial=0) > MAX_DEPTH:
            raise UserError(f"{name} is nested deeper than {MAX_DEPTH} levels; is it a list of texts?")
        if held > MAX_RECORD_BYTES:
            raise UserError(f"{name} holds a value of more than {MAX_RECORD_BYTES:,} bytes; make it a list of records.")
        yield block


_NO_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
"""Bytes that neither begin nor end anything in JSON."""


def csv_rows(blocks: Iterable[bytes], name: str, tally: Tally) -> Iterator[dict[str, str]]:
    """The rows below a header. The delimiter is the most frequent of `,` `;` tab `|` in the header.

    A row with more fields than the header is counted as dropped: its text was cut at an unquoted delimiter.

    Raises:
        UserError: a quote does not end.
    """
    csv.field_size_limit(MAX_RECORD_BYTES)  # the module knows no limit for one reader
    buffered = io.BufferedReader(BlockFile(blocks), 1 << 16)
    with io.TextIOWrapper(buffered, encoding="utf-8", errors=damage_handler(), newline="") as file:
        head = file.readline(MAX_HEADER_CHARS)
        if len(head) == MAX_HEADER_CHARS:
            raise UserError(f"{name}: its header has more than {MAX_HEADER_CHARS:,} characters; is it a table?")
        delimiter = max(",;\t|", key=head.count)
        lines = itertools.takewhile(bool, map(file.readline, itertools.repeat(MAX_RECORD_BYTES)))
        rows = csv.reader(itertools.chain([head], lines), delimiter=delimiter)
        try:
            header = next(rows, [])
            for row in rows:
                if len(row) > len(header):
                    tally.drop("invalid_record", delimiter.join(row))
                elif row:
                    yield dict(zip(header, row, strict=False))
        except csv.Error as error:
            raise UserError(f"{name}, line {rows.line_num}: {error}; check the quotes there.") from None


class BlockFile(io.RawIOBase):
    """Blocks of bytes as a file, for parsers that read from one."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._rest = memoryview(b"")

    def readable(self) -> bool:  # noqa: D102
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: D102
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def parquet_rows(source: Source, columns: list[str] | None, advance: Advance) -> Iterator[dict[str, Any]]:
    """The rows of a parquet file, with the columns that may hold text.

    A compressed file is unpacked to a temporary file first, because parquet is read from its end.

    Raises:
        UserError: the file is broken, or lacks the columns.
    """
    if source.compression is None:
        yield from _rows(source.path, source, columns)
        advance(source.size)
        return
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder, "unpacked.parquet")
        with unpacked.open("wb") as file:
            for block in blocks(source, advance):
                file.write(block)
        yield from _rows(unpacked, source, columns)


def _rows(path: Path, source: Source, columns: list[str] | None) -> Iterator[dict[str, Any]]:
    try:
        table = pl.scan_parquet(path, glob=False)
        schema = table.collect_schema()
        wanted = [name for name in schema if name in (KEYS if columns is None else columns)]
        if not wanted:
            raise no_text(source.path, schema.names(), columns)
        cells = [_bounded(name) if schema[name] == pl.String else pl.col(name) for name in wanted]
        for batch in table.select(cells).collect_batches(chunk_size=PARQUET_ROWS, maintain_order=True):
            yield from batch.iter_rows(named=True)
    except PermissionError:
        raise not_permitted(source) from None
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = " ".join(str(error).split())[:160]
        raise UserError(f"{source.path} is not a readable parquet file ({reason}); get it again.") from None


def _bounded(name: str) -> pl.Expr:
    """A column of text without its cells beyond MAX_RECORD_BYTES, which would be held several times in memory."""
    return pl.when(pl.col(name).str.len_bytes() <= MAX_RECORD_BYTES).then(pl.col(name)).alias(name)


@dataclass(frozen=True)
class Format:
    """How files with one ending are read."""

    read: Reader
    compressed: bool = False
    """Whether the format compresses its content, so that the size on disk does not bound the memory it takes."""


FORMATS: dict[str, Format] = {
    ".txt": Format(read_plain_text),
    ".md": Format(read_plain_text),
    ".jsonl": Format(read_json_lines),
    ".json": Format(read_json),
    ".csv": Format(read_csv),
    ".parquet": Format(read_parquet, compressed=True),
}


def texts(source: Source, params: CleanParams, tally: Tally, advance: Advance = lambda _: None) -> Iterator[str]:
    """The documents of one file as valid Unicode, in order; what is not one is counted in `tally`.

    Raises:
        UserError: the file cannot be read or holds no text in a known shape.
    """
    return without_damage(FORMATS[source.format].read(source, params, tally, advance), tally)


def without_damage(texts: Iterable[str], tally: Tally) -> Iterator[str]:
    """The texts with U+FFFD for invalid bytes, counted in `tally`."""
    for text in texts:
        whole, damaged = replace_damage(text)
        tally.invalid_utf8 += damaged
        yield whole
