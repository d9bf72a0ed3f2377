"""JSON files and JSON lines as records, and the texts of these records, in bounded memory.

polars reads a whole block of JSON lines three times as fast as orjson reads its lines
(`polars_texts`). It is used only where both surely give the same texts.
"""

import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import ijson
import numpy as np
import orjson
import polars as pl

from tokenmill.core.errors import UserError
from tokenmill.data.encoding import (
    DAMAGE,
    decode,
    mark_json_damage,
    mark_json_stream_damage,
    read_utf8,
)
from tokenmill.data.params import CleanParams
from tokenmill.data.record_text import MESSAGES, record_texts
from tokenmill.data.report import EXCERPT, Tally
from tokenmill.data.sources import BLOCK_BYTES, MAX_RECORD_BYTES, Advance, Source
from tokenmill.formats.chat import plain
from tokenmill.formats.chat_columns import plain_column

MAX_DEPTH = 200
"""The deepest nesting of a JSON file that is accepted. Beyond it, the parser would take memory in
the square of the depth."""


def read_json(source: Source, params: CleanParams, tally: Tally, advance: Advance) -> Iterator[str]:
    """The texts of a JSON file."""
    records = json_values(read_utf8(source, tally, advance), str(source.path))
    return record_texts(records, source.path, params.columns, tally)


def read_json_lines(
    source: Source, params: CleanParams, tally: Tally, advance: Advance
) -> Iterator[str]:
    """The texts of a file of JSON lines."""
    return texts_of_lines(read_utf8(source, tally, advance), source, params, tally)


def texts_of_lines(
    stream: Iterable[bytes],
    source: Source,
    params: CleanParams,
    tally: Tally,
    *,
    first: bool = True,
) -> Iterator[str]:
    """The texts in JSON lines (UTF-8) of a file; `first` says whether these lines begin the
    file."""
    records = json_lines(stream, str(source.path), tally, first=first)
    return record_texts(records, source.path, params.columns, tally, first=first)


def json_values(blocks: Iterable[bytes], name: str) -> Iterator[Any]:
    """The elements of a JSON array, or the JSON objects that follow one another."""
    stream = mark_json_stream_damage(bounded_json(blocks, name))
    head = next(filter(None, map(bytes.lstrip, stream)), b"")
    if not head:
        return
    prefix = "item" if head.startswith(b"[") else ""
    file = ijson.from_iter(filter(None, itertools.chain([head], stream)))
    try:
        yield from ijson.items(file, prefix, multiple_values=True, use_float=True)
    except (ijson.JSONError, ValueError) as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise UserError(
            f"{name} is not valid JSON ({' '.join(text.split())[:120]}); fix it or get it again."
        ) from None


def bounded_json(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield the blocks of a JSON file unchanged.

    Raises:
        UserError: the file is nested deeper than MAX_DEPTH, or a value in it is longer than
            MAX_RECORD_BYTES.
    """
    depth = 0
    quoted = 0
    held = 0
    rest = b""
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
            raise UserError(
                f"{name} is nested deeper than {MAX_DEPTH} levels; is it a list of texts?"
            )
        if held > MAX_RECORD_BYTES:
            raise UserError(
                f"{name} holds a value of more than {MAX_RECORD_BYTES:,} bytes; make it a list of "
                "records."
            )
        yield block


_NO_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
"""The bytes that neither begin nor end anything in JSON."""


def json_lines(
    blocks: Iterable[bytes], name: str, tally: Tally, *, first: bool = True
) -> Iterator[Any]:
    """The JSON value of each line. An invalid line is counted as dropped.

    Raises:
        UserError: no line is JSON, or all are too long, and these are the `first` lines of the
            file.
    """
    valid = invalid = too_long = 0
    for line in lines(blocks):
        if line is not None and not line.strip():
            continue
        try:
            record = _value(line)
        except (ValueError, RecursionError):
            invalid += 1
            too_long += line is None
            tally.drop("invalid_record", plain(decode(line[:EXCERPT])) if line else "")
        else:
            valid += 1
            yield record
    if first and too_long and not valid:
        raise UserError(
            f"{name} holds no record, but a line of more than {MAX_RECORD_BYTES:,} bytes; divide "
            "it into records, a line each."
        )
    if first and invalid and not valid:
        raise UserError(
            f"{name}: none of its first {invalid:,} lines is JSON; name it .json or .txt if that "
            "is what it is."
        )


def _value(line: bytes | None) -> Any:
    """Parse one JSON value. Python's reader accepts some values that orjson refuses: lone
    surrogates, NaN, control characters."""
    if line is None:
        raise ValueError
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(decode(mark_json_damage(line)), strict=False)


def lines(blocks: Iterable[bytes], longest: int = MAX_RECORD_BYTES) -> Iterator[bytes | None]:
    r"""The lines of a stream that are not empty, without `\n`; None in place of a line over
    `longest`."""
    for part in whole_lines(blocks, BLOCK_BYTES, longest):
        yield from (line if len(line) <= longest else None for line in part.split(b"\n") if line)


def whole_lines(
    blocks: Iterable[bytes], size: int, longest: int = MAX_RECORD_BYTES
) -> Iterator[bytes]:
    """Divide a stream into blocks of about `size` bytes that end at line ends. Of a line over
    `longest`, only its start is yielded."""
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
            parts = [block[cut:]]
            held = len(block) - cut
        elif held - len(block) > longest + size:
            held -= len(parts.pop())
    if held:
        yield b"".join(parts)


def polars_texts(data: bytes, params: CleanParams) -> pl.Series | None:
    """The texts of whole JSON lines (UTF-8, no byte-order mark), or None if they have to be read
    one by one.

    polars refuses what orjson refuses, with two exceptions: if a key occurs twice in a record,
    polars takes the first value instead of the last, and it may read an escaped lone surrogate as
    NUL. It also formats numbers and lists in its own way. The result is None if any of these is
    possible, or if a line is not plainly a record with its text.
    """
    key = _text_key(params)
    if key is None:
        return None
    others = MESSAGES if params.columns is None else ()  # these keys come before the text
    try:
        table = pl.read_ndjson(io.BytesIO(data), schema=dict.fromkeys((key, *others), pl.String))
    except pl.exceptions.ComputeError:
        return None
    texts = table[key].alias("text")
    rows = len(table)
    if texts.has_nulls() or any(table[other].null_count() < rows for other in others):
        return None
    if any(texts.str.contains(doubtful, literal=True).any() for doubtful in ("\x00", DAMAGE)):
        return None
    strings = re.findall(re.escape(orjson.dumps(key)) + rb'(: ?")?', data)
    return plain_column(texts) if len(strings) == rows and all(strings) else None


def _text_key(params: CleanParams) -> str | None:
    """The key that holds a record's text, if only one can."""
    if params.columns is None:
        return "text"
    return params.columns[0] if len(params.columns) == 1 else None
