"""JSON files and JSON lines as records, and the texts of these records, in bounded memory.

polars reads a whole block of JSON lines three times as fast as orjson reads its lines
(`polars_texts`). It is used only where both give the same texts.
"""

import codecs
import contextlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import orjson
import polars as pl

from tokenmill.core.errors import UserError
from tokenmill.data.encoding import DAMAGE, decode, decode_json
from tokenmill.data.params import CleanParams
from tokenmill.data.record_text import MESSAGES, record_texts
from tokenmill.data.report import EXCERPT, Tally
from tokenmill.data.sources import BLOCK_BYTES, MAX_RECORD_BYTES, Part, Source
from tokenmill.formats.chat import plain
from tokenmill.formats.chat_columns import plain_column
from tokenmill.words.units import counted

MAX_DEPTH = 200
"""The deepest nesting of a JSON file that is accepted, long before Python's parser gives up."""


def read_json(part: Part, source: Source, params: CleanParams, tally: Tally) -> Iterator[str]:
    """The texts of a JSON file, or of a part that `cut_json` gives."""
    records = json_values(part.content(), source.place)
    if part.before:
        next(records, None)  # that which cut_json has put in front
    return record_texts(records, source.place, params.columns, tally, first=part.first)


def read_json_lines(part: Part, source: Source, params: CleanParams, tally: Tally) -> Iterator[str]:
    """The texts of a file of JSON lines, or of some of its lines."""
    records = json_lines(part.content(), source, tally, first=part.first)
    return record_texts(records, source.place, params.columns, tally, first=part.first)


def cut_json_lines(
    blocks: Iterable[bytes], _source: Source, _params: CleanParams, size: int
) -> Iterator[Part]:
    """Divide a file of JSON lines between lines."""
    return map(Part, whole_lines(blocks, size))


def cut_json(
    blocks: Iterable[bytes], source: Source, _params: CleanParams, size: int
) -> Iterator[Part]:
    """Divide a JSON file between values."""
    return whole_values(blocks, source.place, size)


def json_values(blocks: Iterable[bytes], name: str) -> Iterator[Any]:
    """The records of a JSON file, whose values follow one another: the elements of each list, and
    each other value, in their order.

    Raises:
        UserError: the file is not JSON, or a number in it has more digits or a larger exponent than
            Python can hold. Also as `whole_values`.
    """
    for part in whole_values(blocks, name, BLOCK_BYTES):
        records = _values(decode_json(b"".join(part.content())), name)
        if part.before:
            next(records, None)
        yield from records


def _values(text: str, name: str) -> Iterator[Any]:
    end = 0
    try:
        while begin := _NOT_BLANK.search(text, end):
            value, end = _DECODER.raw_decode(text, begin.start())
            yield from value if isinstance(value, list) else [value]
    except json.JSONDecodeError as error:
        place = error.doc[max(0, error.pos - 30) : error.pos + 30]
        raise UserError(
            f"{name} is not valid JSON ({error.msg}: {place!r}); fix it or get it again."
        ) from None
    except (InvalidOperation, ValueError):
        raise UserError(
            f"{name} holds a number with too many digits; write it as a string."
        ) from None


_DECODER = json.JSONDecoder(parse_float=Decimal)

_NOT_BLANK = re.compile(r"[^ \t\n\r]")


def whole_values(blocks: Iterable[bytes], name: str, size: int) -> Iterator[Part]:
    """Divide a JSON file into parts of about `size` bytes: between the elements of its lists, or
    between the values that follow one another; the first part has a record. In front of each part
    but the first is a value more, so that the parser requires the comma there.

    Raises:
        UserError: the file is nested deeper than MAX_DEPTH, or a value in it is longer than
            MAX_RECORD_BYTES.
    """
    structure = _Structure(name)
    parts: list[bytes] = []
    held = 0
    head = before = b""
    for block in blocks:
        structure.add(block)
        parts.append(block)
        held += len(block)
        head = head or block.lstrip()[:1]
        if structure.is_broken or (head and head not in _HEADS):
            break
        cut = max(structure.element_end, structure.value_end)
        if held < size or not cut:
            continue
        whole = [*parts[:-1], block[:cut]]
        # The first part has more than empty lists
        if before or held > MAX_RECORD_BYTES or any(part.strip(b"[] \t\n\r") for part in whole):
            is_inside = structure.element_end == cut
            yield Part(whole, before, b"]" if is_inside else b"")
            before = b"[0" if is_inside else b"0 "
            parts = [block[cut:]]
            held = len(block) - cut
    yield Part(parts, before)


_HEADS = frozenset(bytes([head]) for head in b'[{"-0123456789tfn')
"""The bytes that begin a JSON value."""


class _Structure:
    """The strings, lists and objects of a JSON file, which comes block by block."""

    element_end = 0
    """The last place in the block behind an element of an outermost list; 0 if there is none."""
    value_end = 0
    """The last place in the block behind an outermost value; 0 if there is none."""
    is_broken = False
    """Whether something ended that did not begin, so that the file is no JSON."""

    def __init__(self, name: str):
        self._name = name
        self._depth = 0
        self._quoted = 0
        self._escape = b""
        self._is_list = False
        self._held = 0

    def add(self, block: bytes) -> None:
        """Look at the next block.

        Raises:
            UserError: see `whole_values`.
        """
        before = len(self._escape)
        data = np.frombuffer(self._escape + block, np.uint8)
        behind_escapes = _escapes(data) + 1
        self._escape = b"\\" if len(data) in behind_escapes[-1:] else b""
        quotes = data == ord('"')
        quotes[behind_escapes[: len(behind_escapes) - len(self._escape)]] = False
        braces = data | 0x20  # as which brackets look here, too
        places = np.flatnonzero(quotes | (braces == ord("{")) | (braces == ord("}")))
        found = data[places]
        is_quote = found == ord('"')
        is_inside = (self._quoted + np.cumsum(is_quote, dtype=np.int32)) % 2 == 1
        is_open = (found == ord("[")) | (found == ord("{"))
        steps = np.where(is_quote | is_inside, 0, np.where(is_open, 1, -1))
        levels = self._depth + np.cumsum(steps, dtype=np.int32)
        is_between = levels.min(initial=self._depth) <= 1 and (is_quote.any() or steps.any())
        self._held = 0 if is_between else self._held + len(block)
        self._check(int(levels.max(initial=0)))
        outermost = np.flatnonzero((levels == 1) & (steps == 1))
        since = int(outermost[-1]) + 1 if len(outermost) else 0
        self._is_list = found[since - 1] == ord("[") if since else self._is_list
        ends = ~is_inside & (is_quote | (steps < 0))
        elements = places[since:][ends[since:] & (levels[since:] == 1)]
        values = places[ends & (levels == 0)]
        self.element_end = int(elements[-1]) + 1 - before if self._is_list and len(elements) else 0
        self.value_end = int(values[-1]) + 1 - before if len(values) else 0
        self.is_broken = bool(levels.min(initial=0) < 0)
        self._depth = int(levels[-1]) if len(levels) else self._depth
        self._quoted = int(is_inside[-1]) if len(levels) else self._quoted

    def _check(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise UserError(
                f"{self._name} is nested deeper than {MAX_DEPTH} levels; is it a list of texts?"
            )
        if self._held > MAX_RECORD_BYTES:
            raise UserError(
                f"{self._name} holds a value of more than {MAX_RECORD_BYTES:,} bytes; make it a "
                "list of records."
            )


def _escapes(data: np.ndarray) -> np.ndarray:
    """The places of the backslashes that escape what follows: every other one of several."""
    places = np.flatnonzero(data == ord("\\"))
    numbers = np.arange(len(places))
    starts = np.where(np.diff(places, prepend=-2) > 1, numbers, 0)
    return places[(numbers - np.maximum.accumulate(starts)) % 2 == 0]


def json_lines(
    blocks: Iterable[bytes], source: Source, tally: Tally, *, first: bool = True
) -> Iterator[Any]:
    """The JSON value of each line. An invalid line is counted as dropped.

    Raises:
        UserError: the first record is a list; or no line is JSON, or all are too long, and these
            are the `first` lines of the file. If there is but one, which may be longer than a
            chunk, the tally notes it instead.
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
            if first and not valid and isinstance(record, list):
                raise UserError(
                    f"{source.place}: its first record is a list; name it .json if that holds the "
                    "records."
                )
            valid += 1
            yield record
    if not first or valid or not invalid:
        return
    if too_long:
        refusal = (
            f"{source.place} holds no record, but a line of more than {MAX_RECORD_BYTES:,} "
            "bytes; divide it into records, a line each."
        )
    else:
        found = f"begins with {counted(invalid, 'line')} without JSON"
        refusal = f"{source.place} {found}; name it .json or .txt if that is what it is."
    if invalid > 1:
        raise UserError(refusal)
    tally.refusals[source.name] = refusal


_LARGE = re.compile(rb'": ?-?\d{19}')
"""Matches a key whose number may be beyond 64 bits. orjson makes a float of it, of 17 digits."""


def _value(line: bytes | None) -> Any:
    """Parse one JSON value. Python's reader accepts some values that orjson refuses: lone
    surrogates, NaN, control characters. A byte-order mark begins files, which are joined here."""
    if line is None:
        raise ValueError
    with contextlib.suppress(orjson.JSONDecodeError):
        if not _LARGE.search(line):
            return orjson.loads(line)
    return json.loads(decode_json(line.removeprefix(codecs.BOM_UTF8)), strict=False)


def lines(blocks: Iterable[bytes]) -> Iterator[bytes | None]:
    r"""The lines of a stream that are not empty, without `\n`; None in place of a line over
    MAX_RECORD_BYTES."""
    for part in whole_lines(blocks, BLOCK_BYTES):
        found = b"".join(part).split(b"\n")
        yield from (line if len(line) <= MAX_RECORD_BYTES else None for line in found if line)


def whole_lines(blocks: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Divide a stream into parts of about `size` bytes, each a list of blocks, that end at line
    ends. Of a line over MAX_RECORD_BYTES, only its start is yielded."""
    parts: list[bytes] = []
    held = 0
    for block in blocks:
        parts.append(block)
        held += len(block)
        if held < size:
            continue
        cut = block.rfind(b"\n") + 1
        if cut:
            yield [*parts[:-1], block[:cut]]
            parts = [block[cut:]]
            held = len(block) - cut
        elif held - len(block) > MAX_RECORD_BYTES + size:
            held -= len(parts.pop())
    if held:
        yield parts


_BEYOND_FFFF = [bytes([lead]) for lead in range(0xF0, 0xF5)]
"""The first bytes of characters beyond U+FFFF in UTF-8."""

_FALSE_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[efEF]")
"""Matches escapes that polars takes for a surrogate pair, though the second is none."""


def polars_texts(data: bytes, params: CleanParams) -> pl.Series | None:
    """The texts of whole JSON lines (UTF-8, no byte-order mark), or None if they have to be read
    one by one.

    polars refuses what orjson refuses, with two exceptions: if a key occurs twice in a record,
    polars takes the first value instead of the last, and it may read an escaped lone surrogate as
    NUL, or with the escape behind it as a character beyond U+FFFF. It also formats numbers and
    lists in its own way. The result is None if any of these is possible, or if a line is not
    plainly a record with its text. Only a key that stands there twice, once with escaped letters,
    which no program writes, is not noticed: a search for it would cost a fifth of the time.
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
    encoded = texts.cast(pl.Binary)
    if any(encoded.bin.contains(doubtful).any() for doubtful in (b"\0", DAMAGE.encode())):
        return None
    if any(encoded.bin.contains(lead).any() for lead in _BEYOND_FFFF) and _FALSE_PAIR.search(data):
        return None
    strings = re.findall(re.escape(orjson.dumps(key)) + rb'(: ?")?', data)
    return plain_column(texts) if len(strings) == rows and all(strings) else None


def _text_key(params: CleanParams) -> str | None:
    """The key that holds a record's text, if only one can."""
    if params.columns is None:
        return "text"
    return params.columns[0] if len(params.columns) == 1 else None
