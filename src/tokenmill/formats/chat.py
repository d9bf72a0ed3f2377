"""Conversations: who speaks, the marks around turns in a document, and what people see of them.

A turn's boundary is one special token for the model, `<|user_start|>` … and `<|turn_end|>`. In a
document it is one mark, a noncharacter that Unicode reserves for internal use. Text from outside
loses these code points in `plain`, and `render_chat` alone writes them. So no text of somebody else
can open a turn, whatever it spells.
"""

import re
from collections.abc import Iterable
from typing import Literal, NewType

Role = Literal["user", "assistant", "system", "tool"]

START: dict[Role, str] = {
    "user": "\ufdd1",
    "assistant": "\ufdd2",
    "system": "\ufdd3",
    "tool": "\ufdd4",
}
"""The mark that begins a turn of each role. (U+FDD0 is `DAMAGE` in data/encoding.py.)"""

TURN_END = "\ufdd5"
"""The mark that ends a turn."""

TURN_TOKENS: dict[str, str] = {
    **{mark: f"<|{role}_start|>" for role, mark in START.items()},
    TURN_END: "<|turn_end|>",
}
"""For each mark, the spelling of its special token in tokenizer.json."""

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
"""The role for each name of a speaker in data sets, in lower case. A speaker with any other name is
a user, and the name is written before the content."""

Document = NewType("Document", str)
"""A text that this project composed: its marks are boundaries of turns. Text from outside is a
plain `str`."""

_MARK = re.compile(f"([{''.join(TURN_TOKENS)}])")

SHOWN = {mark: f"\n{role.capitalize()}: " for role, mark in START.items()} | {TURN_END: ""}
"""The text that people see in place of each mark."""


def plain(text: str) -> str:
    """Remove the code points of marks from text. Text from outside becomes part of a document only
    through this function."""
    if text.isascii() or not any(mark in text for mark in TURN_TOKENS):
        return text
    return _MARK.sub("", text)


def render_chat(messages: Iterable[tuple[str, str]]) -> Document:
    r"""A conversation of (role, content) as a document; empty if there is no turn or an assistant's
    turn is empty.

    Example:
        >>> readable(render_chat([("human", "Hi!"), ("gpt", "Hello."), ("Anna", "Bye.")]))
        'User: Hi!\nAssistant: Hello.\nUser: Anna: Bye.'
    """
    turns = []
    for name, content in messages:
        role, said = ROLES.get(name.lower()), plain(content).strip()
        if said and role is None:
            said = f"{plain(name).strip().capitalize()}: {said}"
        if said:
            turns.append(f"{START[role or 'user']}{said}{TURN_END}")
        elif role == "assistant":
            return Document("")
    return Document("".join(turns))


def chat_prompt(messages: Iterable[tuple[str, str]]) -> Document:
    r"""The document that a model continues with the assistant's next turn.

    Example:
        >>> readable(chat_prompt([("user", "What is the capital of France?")]))
        'User: What is the capital of France?\nAssistant:'
    """
    return Document(render_chat(messages) + START["assistant"])


def split_turns(document: str) -> list[str]:
    """Split a document into its marks and the texts between them, in order. Joined, they are the
    document again."""
    return [part for part in _MARK.split(document) if part]


def spelled(document: Document) -> str:
    """Replace each mark of a document by the spelling of its special token, for other tools."""
    return _MARK.sub(lambda mark: TURN_TOKENS[mark[0]], document)


def readable(document: str) -> str:
    """A document as people see it: each turn on a line of its own, after the name of its role."""
    if plain(document) == document:
        return document
    return _MARK.sub(lambda mark: SHOWN[mark[0]], document).removeprefix("\n").rstrip(" ")
