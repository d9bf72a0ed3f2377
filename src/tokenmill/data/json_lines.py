"""JSON lines: one record per line, in bounded memory.

Where polars surely reads the same as orjson, it reads a whole block at once, three times as fast as line by line
(`polars_texts`). Everywhere else the line decides.
"""

import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
import polars as pl

from tokenmill.core.errors import UserError
from tokenmill.data import record_text
from tokenmill.data.encoding import DAMAGE, decode, mark_json_damage, read_utf8
from tokenmill.data.params import CleanParams
from tokenmill.data.report import EXCERPT, Tally
from tokenmill.data.sources import MAX_RECORD_BYTES, Advance, Source


def read_json_lines(source: Source, params: CleanParams, tally: Tally, advance: Advance) -> Iterator[str]:
    """The texts of a file of JSON lines."""
    return texts_of_lines(read_utf8(source, tally, advance), source, params, tally)


def texts_of_lines(
    stream: Iterable[bytes], source: Source, params: CleanParams, tally: Tally, *, first: bool = True
) -> Iterator[str]:
    """The texts in JSON lines (UTF-8) of a file; `first` tells whether they begin it."""
    records = json_lines(stream, str(source.path), tally, first=first)
    return record_text.record_texts(records, source.path, params.columns, tally, first=first)


def json_lines(blocks: Iterable[bytes], name: str, tally: Tally, *, first: bool = True) -> Iterator[Any]:
    """The JSON value of each line; an invalid line is counted as dropped.

    Raises:
        UserError: no line is JSON, and these lines are the `first` ones of the file.
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
    """One JSON value. Python's reader takes some of what orjson refuses: lone surrogates, NaN, control characters."""
    if line is None:
        raise ValueError
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(decode(mark_json_damage(line)), strict=False)


def lines(blocks: Iterable[bytes], longest: int = MAX_RECORD_BYTES) -> Iterator[bytes | None]:
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
    """The parts of a line in one; the list is emptied, so that they are not held twice."""
    line = b"".join(parts)
    parts.clear()
    return line


def whole_lines(blocks: Iterable[bytes], size: int, longest: int = MAX_RECORD_BYTES) -> Iterator[bytes]:
    """The same bytes in blocks of about `size` that end at line ends; of a line over `longest`, only its start."""
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


def polars_texts(data: bytes, params: CleanParams) -> pl.Series | None:
    """The texts of whole JSON lines (UTF-8, no byte-order mark), or None if they have to be read one by one.

    polars refuses what orjson refuses, with two exceptions: of a key that occurs twice in a record it takes the first
    value instead of the last, and it may take an escaped lone surrogate for NUL. It also formats numbers and lists in
    its own way. If any of these is possible, or a line is not plainly a record with its text, the result is None.
    """
    key = _text_key(params)
    if key is None:
        return None
    others = record_text.MESSAGES if params.columns is None else ()  # these keys come before the text
    try:
        table = pl.read_ndjson(io.BytesIO(data), schema=dict.fromkeys((key, *others), pl.String))
    except pl.exceptions.ComputeError:
        return None
    texts, rows = table[key].alias("text"), len(table)
    if texts.has_nulls() or any(table[other].null_count() < rows for other in others):
        return None
    if any(texts.str.contains(doubtful, literal=True).any() for doubtful in ("\x00", DAMAGE)):
        return None
    strings = re.findall(re.escape(orjson.dumps(key)) + rb'(: ?")?', data)
    return texts if len(strings) == rows and all(strings) else None


def _text_key(params: CleanParams) -> str | None:
    """The key that holds a record's text, if only one can."""
    if params.columns is None:
        return "text"
    return params.columns[0] if len(params.columns) == 1 else None
