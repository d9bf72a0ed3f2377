"""Find the texts in records (JSON values, rows of tables), by the usual shapes or by the columns
that are named."""

import json
import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import orjson

from tokenmill.core.errors import UserError
from tokenmill.data.encoding import decode
from tokenmill.data.report import Tally
from tokenmill.formats.chat import plain, render_chat

MESSAGES = ("messages", "conversations", "conversation")

TEXT = ("text", "content", "body")

ANSWERS = {
    "instruction": ("output", "response", "completion", "answer"),
    "prompt": ("completion", "response", "output", "answer"),
    "question": ("answer", "response", "output", "completion"),
}
"""The keys of questions, and for each the keys of its answer, in the order in which they are
tried."""

EXTRA = ("input", "context")
"""The keys of the material to which a question refers."""

KEYS = frozenset(
    {*MESSAGES, *TEXT, *ANSWERS, *EXTRA, *(key for keys in ANSWERS.values() for key in keys)}
)
"""Every key of a known shape. These columns of a table have to be read."""


def record_texts(
    records: Iterable[Any],
    name: str,
    columns: Sequence[str] | None,
    tally: Tally,
    *,
    first: bool = True,
) -> Iterator[str]:
    """The texts of the records of the file `name`. Records without text are counted in `tally`.

    Args:
        records: the records in order.
        name: the file's path or URL, for error messages.
        columns: the columns that hold the text; None finds the usual shapes.
        tally: counts what is dropped.
        first: whether these records begin the file.

    Raises:
        UserError: the first record of the file has no text.
    """
    for record in records:
        if first and columns is not None and set(columns) - set(_keys(record)):
            raise no_text(name, _keys(record), columns)
        try:
            text = text_of(record) if columns is None else join(record, columns)
        except RecursionError:  # lists within lists
            text = None
        if text is not None:
            yield text
        elif first:
            raise no_text(name, _keys(record), columns)
        else:
            tally.drop("no_text", plain(_shown(record)))
        first = False


def _shown(record: Any) -> str:
    try:
        return orjson.dumps(record, default=_number_or_text).decode()
    except TypeError:  # it is nested deeply
        return reprlib.repr(record)


def _number_or_text(value: Any) -> float | str:
    return float(value) if isinstance(value, Decimal) else str(value)


def no_text(name: str, keys: Sequence[str], columns: Sequence[str] | None) -> UserError:
    """The error for a file without text; `keys` are the keys or columns that it has."""
    shown = [reprlib.repr(key)[1:-1] for key in keys[:20]]
    there = (
        ", ".join(shown) + (f" and {len(keys) - 20:,} more" if len(keys) > 20 else "") or "no keys"
    )
    if columns is None:
        key = next(filter(keys.__contains__, MESSAGES), None)
        chat = f"make {key} a list of messages with role and content, " if key else ""
        return UserError(
            f"{name} has no text in a known shape (it has: {there}); set clean.columns to those "
            f"that hold the text, {chat}or take the file out of data.raw."
        )
    return UserError(f"{name} lacks clean.columns ({', '.join(columns)}); it has: {there}.")


def text_of(record: Any) -> str | None:
    r"""The document of a record in one of the usual shapes; None if it has none of them.

    The shapes are tried in this order: a bare string; `messages` or `conversations`; `text`;
    `instruction`, `prompt` or `question`, with `input` or `context` and with their answer, or both
    as lists of messages, which are one conversation; a conversation of ChatGPT's export
    (`mapping`); `content` or `body`. A null or a NaN, which a table of several sources has in the
    columns of the others, is an empty text where no other key helps.

    Example:
        >>> readable(text_of({"instruction": "Add.", "input": "1 + 1", "output": "2"}))
        'User: Add.\n1 + 1\nAssistant: 2'
    """
    if not isinstance(record, Mapping):
        return plain(record) if isinstance(record, str) else None
    text = _shaped({key: value for key, value in record.items() if not _is_null(value)})
    return _shaped(record) if text is None else text


def _shaped(record: Mapping[str, Any]) -> str | None:
    for key in MESSAGES:
        if _is_list(record.get(key)):
            return _conversation(record[key])
    if "text" in record:
        return _plain(record["text"])
    for key, answers in ANSWERS.items():
        answer = next((name for name in answers if name in record), None)
        if key in record and answer:
            if _is_list(record[key]) and _is_list(record[answer]):
                return _conversation([*record[key], *record[answer]])
            return _exchange([record[key], *(record.get(name) for name in EXTRA)], record[answer])
    if isinstance(record.get("mapping"), Mapping):
        return _exported(record["mapping"], record.get("current_node"))
    return next((_plain(record[key]) for key in TEXT if key in record), None)


def join(record: Any, columns: Sequence[str]) -> str | None:
    """Join the named columns of a record by a line break, without those that are missing or null;
    None if none is left."""
    if not isinstance(record, Mapping) or not any(column in record for column in columns):
        return None
    parts = [_named(record.get(column)) for column in columns]
    return "\n".join(part for part in parts if part)


def _keys(record: Any) -> list[str]:
    return [str(key) for key in record] if isinstance(record, Mapping) else []


def _is_null(value: Any) -> bool:
    """Whether it stands for no value; pandas has NaN for that, and Python writes it into JSON."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _plain(value: Any) -> str | None:
    if _is_null(value):
        return ""
    if isinstance(value, bytes):  # in a parquet file that does not say that it is text
        value = decode(value)
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Decimal):  # of a number with a fraction, in a JSON file
        value = float(value)
    return str(value) if isinstance(value, int | float) else None


def _named(value: Any) -> str:
    """The text of a named column's value: text, a number, a time, a conversation, or several of
    them."""
    text = _plain(value)
    if text is not None:
        return text
    if isinstance(value, date | time | timedelta):
        return str(value)
    if isinstance(value, Sequence):
        if any(isinstance(item, Mapping) for item in value):
            return _conversation(value) or ""
        return "\n".join(_named(item) for item in value)
    return text_of(value) or ""


def _exchange(question: Sequence[Any], answer: Any) -> str | None:
    """A question of several parts, and its answer. None if one of them is no text, so that nothing
    is lost unnoticed."""
    parts = [_plain(part) for part in (*question, answer)]
    if any(part is None for part in parts):
        return None
    *asked, answered = (part.strip() for part in parts if part is not None)
    return render_chat([("user", "\n".join(filter(None, asked))), ("assistant", answered)])


def _conversation(messages: Sequence[Any]) -> str | None:
    turns = []
    for message in messages:
        if not isinstance(message, Mapping):
            return None
        role = message.get("role") or message.get("from")
        content = _said(message)
        if not isinstance(role, str) or content is None:
            return None
        turns.append((role, content))
    return render_chat(turns)


def _said(message: Mapping[str, Any]) -> str | None:
    """The content of a message; that of one without text which calls tools is the calls as JSON."""
    given = [message[key] for key in ("content", "value") if key in message]
    said = _content(next((one for one in given if one is not None), None))
    calls = message.get("tool_calls") or message.get("function_call")
    if calls and said is not None and not said.strip():
        return json.dumps(calls, ensure_ascii=False, separators=(",", ":"), default=_number_or_text)
    return said if given else None


def _exported(nodes: Mapping[str, Any], last: Any) -> str:
    """A conversation of ChatGPT's export. It is a tree of messages, of which the branch that ends
    with `last` was shown. Where damage made a circle of it, each message is taken once."""
    turns = list[tuple[str, str]]()
    left = dict(nodes)
    while isinstance(last, str) and last in left:
        node = _mapping(left.pop(last))
        message = _mapping(node.get("message"))
        last = node.get("parent")
        role = _mapping(message.get("author")).get("role")
        text = _content(_mapping(message.get("content")).get("parts", ()))
        if role in ("user", "assistant") and text:  # the others are the system's and of tools
            turns.append((role, text))
    return render_chat(reversed(turns))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _content(value: Any) -> str | None:
    """A message's content: text, or a list of parts, from which those with text are taken."""
    if _is_list(value):
        texts = [part.get("text") if isinstance(part, Mapping) else part for part in value]
        return "\n".join(text for text in texts if isinstance(text, str))
    return _plain(value)
