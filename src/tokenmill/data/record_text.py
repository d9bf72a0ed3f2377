"""Find the texts in records (JSON values, rows of tables), by the usual shapes or by the columns
that are named."""

import itertools
import json
import math
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from operator import itemgetter
from typing import Any, TypeAlias

import orjson

from tokenmill.core.errors import UserError
from tokenmill.data.encoding import decode
from tokenmill.data.report import Tally
from tokenmill.formats.chat import ROLES, plain, render_chat

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

SYSTEM = ("system", "system_prompt")
"""The keys beside a conversation of what the system says before it."""

BESIDE = ("tools", "history")
"""The keys beside a conversation of what is not read, but counted: descriptions of tools, which
nobody says, and earlier turns, which have no common shape."""

KEYS = frozenset({*MESSAGES, *TEXT, *ANSWERS, *EXTRA, *SYSTEM, *BESIDE}.union(*ANSWERS.values()))
"""Every key of a known shape. These columns of a table have to be read."""

THOUGHTS = ("thinking", "reasoning_content")
"""The keys of what an assistant thinks before it speaks, in its message."""

CALLS = ("tool_use", "server_tool_use", "tool_call", "function_call")
"""The types of parts of a message that call a tool."""

MEDIA = ("image", "image_url", "input_image", "audio", "input_audio", "video")
"""The types of parts without text that are counted by name. All others are `other`, so that a text
cannot fill the memory with names."""

Turns: TypeAlias = list[tuple[str, str]]
"""Who speaks, and what is said."""


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
    unread = Counter[str]()
    for record in records:
        if first and columns is not None and set(columns) - set(_keys(record)):
            raise no_text(name, _keys(record), columns)
        try:
            text = text_of(record, unread) if columns is None else join(record, columns, unread)
        except RecursionError:  # lists within lists
            text = None
        if unread:
            tally.unread.update(unread if text is not None else ())
            unread.clear()
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


def text_of(record: Any, unread: Counter[str]) -> str | None:
    r"""The document of a record in one of the usual shapes; None if it has none of them.

    The shapes are tried in this order: a bare string; `messages` or `conversations`; `text`;
    `instruction`, `prompt` or `question`, with `input` or `context` and with their answer, or both
    as lists of messages, which are one conversation; a conversation of ChatGPT's export
    (`mapping`); `content` or `body`. Before a conversation comes what `system` or `system_prompt`
    says. A null or a NaN, which a table of several
    sources has in the columns of the others, is an empty text where no other key helps.

    Args:
        record: the record.
        unread: counts by name what is left out of a conversation, such as images.

    Example:
        >>> record = {"instruction": "Add.", "input": "1 + 1", "output": "2"}
        >>> readable(text_of(record, Counter()))
        'User: Add.\n1 + 1\nAssistant: 2'
    """
    if not isinstance(record, Mapping):
        return plain(record) if isinstance(record, str) else None
    given = {key: value for key, value in record.items() if not _is_null(value)}
    text = _shaped(given, unread)
    return _shaped(record, unread) if text is None else text


def _shaped(record: Mapping[str, Any], unread: Counter[str]) -> str | None:
    for key in MESSAGES:
        if key in record and (messages := _messages(record[key])) is not None:
            return _chat(_turns(messages, unread), record, unread)
    if "text" in record:
        return _plain(record["text"])
    for key, answers in ANSWERS.items():
        answer = next((name for name in answers if name in record), None)
        if key in record and answer:
            if _is_list(record[key]) and _is_list(record[answer]):
                messages = [*record[key], *record[answer]]
                return _chat(_turns(messages, unread), record, unread)
            question = [record[key], *(record.get(name) for name in EXTRA)]
            return _chat(_exchange(question, record[answer]), record, unread)
    if isinstance(record.get("mapping"), Mapping):
        return _exported(record["mapping"], record.get("current_node"), unread)
    return next((_plain(record[key]) for key in TEXT if key in record), None)


def join(record: Any, columns: Sequence[str], unread: Counter[str]) -> str | None:
    """Join the named columns of a record by a line break, without those that are missing or null;
    None if none is left. For `unread` see `text_of`."""
    if not isinstance(record, Mapping) or not any(column in record for column in columns):
        return None
    parts = [_named(record.get(column), unread) for column in columns]
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


def _named(value: Any, unread: Counter[str]) -> str:
    """The text of a named column's value: text, a number, a time, a conversation, or several of
    them."""
    text = _plain(value)
    if text is not None:
        return text
    if isinstance(value, date | time | timedelta):
        return str(value)
    messages = _messages(value)
    if messages is None:
        return text_of(value, unread) or ""
    if any(isinstance(item, Mapping) for item in messages):
        return render_chat(_turns(messages, unread) or [])
    return "\n".join(_named(item, unread) for item in messages)


def _exchange(question: Sequence[Any], answer: Any) -> Turns | None:
    """A question of several parts, and its answer. None if one of them is no text, so that nothing
    is lost unnoticed."""
    parts = [_plain(part) for part in (*question, answer)]
    if any(part is None for part in parts):
        return None
    *asked, answered = (part.strip() for part in parts if part is not None)
    return [("user", "\n".join(filter(None, asked))), ("assistant", answered)]


def _chat(turns: Turns | None, record: Mapping[str, Any], unread: Counter[str]) -> str | None:
    """A conversation, and before it what its record has beside it for that place."""
    if not turns:
        return None if turns is None else ""
    unread.update(key for key in BESIDE if record.get(key))
    system: Turns = []
    for key in SYSTEM:
        said = record.get(key)
        if isinstance(said, str) or _is_list(said):
            system += _by_speaker(_pieces("system", said, unread) or [])
        elif said is not None:
            unread[key] += 1
    role, begins = turns[0]
    if ROLES.get(role.lower()) == "system":  # the same again is no other one
        system = [turn for turn in system if turn[1].strip() != begins.strip()]
    return render_chat([*system, *turns])


def _messages(value: Any) -> Sequence[Any] | None:
    """A list of messages; also of one that is stored as a list for each of their keys, as a
    `Sequence` of `datasets` is. None if it is neither."""
    if not isinstance(value, Mapping):
        return value if _is_list(value) else None
    lists = {key: one for key, one in value.items() if one is not None}
    if lists.keys().isdisjoint(("role", "from")) or not all(map(_is_list, lists.values())):
        return None
    if len(set(map(len, lists.values()))) > 1:
        return None
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _turns(messages: Sequence[Any], unread: Counter[str]) -> Turns | None:
    """The turns of a conversation; None if a message has no role or no content."""
    turns: Turns = []
    for message in messages:
        said = _said(message, unread) if isinstance(message, Mapping) else None
        if said is None:
            return None
        turns += said
    return turns


def _said(message: Mapping[str, Any], unread: Counter[str]) -> Turns | None:
    """The turns of a message. Thoughts, text and calls of tools are one turn; results of tools
    among its parts are turns of their own."""
    role = message.get("role") or message.get("from")
    content = message.get("content")
    if content is None:
        content = message.get("value")
    calls = message.get("tool_calls") or message.get("function_call")
    if not isinstance(role, str) or not (calls or "content" in message or "value" in message):
        return None
    turns = _pieces(role, content, unread)
    if turns is None:
        return None
    thoughts = [message[key] for key in THOUGHTS if isinstance(message.get(key), str)]
    if calls or any(thoughts):
        turns = [*((role, _thought(one)) for one in thoughts), *turns]
        turns += [(role, _as_json(calls))] if calls else []
        turns = [(speaker, text.strip()) for speaker, text in turns if text.strip()]
    return _by_speaker(turns) or [(role, "")]


def _by_speaker(turns: Turns) -> Turns:
    """The same with one turn where several of one speaker follow each other."""
    if len(turns) == 1:
        return turns
    return [
        (speaker, "\n".join(text for _, text in group))
        for speaker, group in itertools.groupby(turns, itemgetter(0))
    ]


def _exported(nodes: Mapping[str, Any], last: Any, unread: Counter[str]) -> str:
    """A conversation of ChatGPT's export. It is a tree of messages, of which the branch that ends
    with `last` was shown. Where damage made a circle of it, each message is taken once."""
    turns: Turns = []
    left = dict(nodes)
    while isinstance(last, str) and last in left:
        node = _mapping(left.pop(last))
        message = _mapping(node.get("message"))
        last = node.get("parent")
        role = _mapping(message.get("author")).get("role")
        if role in ("user", "assistant"):  # the others are the system's and of tools
            parts = _mapping(message.get("content")).get("parts", ())
            said = _by_speaker(_pieces(role, parts, unread) or [])
            turns += [turn for turn in reversed(said) if turn[1]]
    return render_chat(reversed(turns))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _pieces(role: str, content: Any, unread: Counter[str]) -> Turns | None:
    """What a message says, in pieces: its text, or that of each of its parts. None if it is
    neither."""
    if _is_list(content):
        return [piece for part in content for piece in _pieces_of(role, part, unread)]
    text = _plain(content)
    return None if text is None else [(role, text)]


def _pieces_of(role: str, part: Any, unread: Counter[str]) -> Turns:
    """What a part of a message says. A part without text is counted as unread, by its type."""
    if isinstance(part, str):
        return [(role, part)]
    if part is None:
        return []
    part = {key: value for key, value in _mapping(part).items() if value is not None}
    kind = part.get("type", part.get("content_type"))
    for key in ("text", "refusal"):
        if isinstance(part.get(key), str):
            return [(role, part[key])]
    if isinstance(part.get("thinking"), str):
        return [(role, _thought(part["thinking"]))]
    if kind in CALLS:
        return [(role, _as_json(part))]
    said = _pieces("tool", part.get("content"), unread) if kind == "tool_result" else None
    if said is None:
        unread[kind if kind in MEDIA else "other"] += 1
    return said or []


def _thought(text: str) -> str:
    return text and f"<think>\n{text.strip()}\n</think>"


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_number_or_text)
