"""What changed from one text to the next, word by word."""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["same", "new", "gone"]
WORDS = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")
"""A word or a sign, with the white space behind it."""
ALIKE = 0.4
"""Texts that share less than this (difflib's ratio) have nothing to compare; one is simply another text."""


@dataclass(frozen=True)
class Span:
    """A run of words of one kind; what is gone stands where it was."""

    kind: Kind
    text: str


def changes(before: str, after: str) -> list[Span]:
    """`after` as spans; those that are the same or new are all of it, those that are the same or gone are `before`.

    White space is not compared, and stands as it does in `after`. Texts that have little in common have no new words:
    all of `after` is one span, as if nothing had been before.

    Example:
        >>> [(span.kind, span.text) for span in changes("a red cat", "a blue cat")]
        [('same', 'a '), ('gone', 'red '), ('new', 'blue '), ('same', 'cat')]
    """
    old, new = WORDS.findall(before), WORDS.findall(after)
    matcher = SequenceMatcher(None, [word.rstrip() for word in old], [word.rstrip() for word in new], autojunk=False)
    if matcher.ratio() < ALIKE:
        return [Span("same", after)]
    spans = []
    for tag, i, j, k, n in matcher.get_opcodes():
        if tag == "equal":
            spans.append(Span("same", "".join(new[k:n])))
            continue
        gone, come = "".join(old[i:j]), "".join(new[k:n])
        apart = i and old[i - 1][-1:].isspace() and not new[k - 1][-1:].isspace()
        spans += [Span("gone", " " * apart + gone)] if gone.strip() else []
        spans += [Span("new" if come.strip() else "same", come)] if come else []
    return spans
