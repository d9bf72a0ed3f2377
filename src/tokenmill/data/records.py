"""JSON lines, JSON and CSV as streams of records."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import IO, Any, cast

import ijson
import orjson

from tokenmill.core.errors import UserError
from tokenmill.data.encoding import damage_handler, decode, mend_json, mend_json_stream
from tokenmill.data.report import EXCERPT, Tally

LONGEST_RECORD = 256 << 20
"""Bytes of one record beyond which it is not held in memory but counted as invalid (CSV: refused)."""


class BlockFile(io.RawIOBase):
    """Blocks of bytes as a file to read from, for parsers that want one."""

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


def whole_lines(blocks: Iterable[bytes], size: int, longest: int = LONGEST_RECORD) -> Iterator[bytes]:
    r"""The same bytes in blocks of about `size` that end at line ends; of a line over `longest`, the start alone."""
    parts: list[bytes] = []
    held = 0
    for block in blocks:
        parts.append(block)
        held += len(block)
        if held < size:
            continue
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join([*parts[:-1], block[:cut]])
            parts, held = [block[cut:]], len(block) - cut
        elif held - len(block) > longest + size:
            held -= len(parts.pop())
    if held:
        yield b"".join(parts)


def lines(blocks: Iterable[bytes], longest: int = LONGEST_RECORD) -> Iterator[bytes | None]:
    r"""The lines of a stream without their `\n`; None for one longer than `longest`."""
    parts: list[bytes] = []
    size = 0
    for block in blocks:
        first, *others = block.split(b"\n")
        size += len(first)
        parts = [*parts, first] if size <= longest else []
        if not others:
            continue
        yield _joined(parts) if size <= longest else None
        *whole, last = others
        yield from (line if len(line) <= longest else None for line in whole)
        parts, size = [last], len(last)
    yield _joined(parts) if size <= longest else None


def _joined(parts: list[bytes]) -> bytes:
    """The parts of a line, which are let go."""
    line = b"".join(parts)
    parts.clear()
    return line


def json_lines(blocks: Iterable[bytes], name: str, tally: Tally, *, first: bool = True) -> Iterator[Any]:
    """One JSON value a line; a line that is none is counted as dropped.

    Raises:
        UserError: no line is JSON, and these are the `first` ones of the file.
    """
    valid = invalid = 0
    for line in lines(blocks):
        if line is not None and not line.strip():
            continue
        try:
            record = _value(line)
        except (ValueError, RecursionError):
            invalid += 1
            tally.drop("invalid_record", decode(line[:EXCERPT]) if line else "")
        else:
            valid += 1
            yield record
    if first and invalid and not valid:
        raise UserError(
            f"{name}: none of its first {invalid:,} lines is JSON; name it .json or .txt if that is what it is."
        )


def _value(line: bytes | None) -> Any:
    """One JSON value; what orjson refuses (lone surrogates, NaN, control characters) Python's reader may take."""
    if line is None:
        raise ValueError
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(decode(mend_json(line)), strict=False)


def json_values(blocks: Iterable[bytes], name: str) -> Iterator[Any]:
    """The elements of a JSON array, or the JSON objects that follow one another.

    Raises:
        UserError: the file is not JSON.
    """
    stream = _without_leading_blanks(mend_json_stream(blocks))
    head = next(stream, b"")
    if not head:
        return
    prefix = "item" if head.startswith(b"[") else ""
    file = io.BufferedReader(BlockFile(_chain(head, stream)), 1 << 16)
    try:
        yield from ijson.items(cast("IO[bytes]", file), prefix, multiple_values=True, use_float=True)
    except (ijson.JSONError, ValueError) as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise UserError(
            f"{name} is not valid JSON ({' '.join(text.split())[:120]}); mend it or get it again."
        ) from None


def _without_leading_blanks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    stream = iter(blocks)
    for block in stream:
        if block := block.lstrip():
            yield block
            break
    yield from stream


def _chain(head: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    yield head
    yield from rest


def csv_rows(blocks: Iterable[bytes], name: str, tally: Tally) -> Iterator[dict[str, str]]:
    """The rows under a header, which also tells the delimiter: the most frequent of `,` `;` tab `|` in it.

    A row with more fields than the header is counted as dropped: its text was cut at an unquoted delimiter.

    Raises:
        UserError: the quotes of the file do not end.
    """
    csv.field_size_limit(LONGEST_RECORD)
    buffered = io.BufferedReader(BlockFile(blocks), 1 << 16)
    with io.TextIOWrapper(buffered, encoding="utf-8", errors=damage_handler(), newline="") as file:
        first = file.readline(LONGEST_RECORD)
        delimiter = max(",;\t|", key=first.count)
        rows = csv.reader(_chain_text(first, file), delimiter=delimiter)
        try:
            header = next(rows, [])
            for row in rows:
                if len(row) > len(header):
                    tally.drop("invalid_record", delimiter.join(row))
                elif row:
                    yield dict(zip(header, row, strict=False))
        except csv.Error as error:
            raise UserError(f"{name}, line {rows.line_num}: {error}; check the quotes there.") from None


def _chain_text(first: str, file: io.TextIOWrapper) -> Iterator[str]:
    yield first
    while line := file.readline(LONGEST_RECORD):
        yield line
