"""Colours on a terminal, and nowhere else.

Numbers in the unit that says something.

Text for a terminal, broken between words while it comes.
"""

import os
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal, TextIO

CODES = {"red": "31", "green": "32", "yellow": "33", "dim": "2"}


Colour = Literal["red", "green", "yellow", "dim"]


def paint(text: str, colour: Colour, out: TextIO) -> str:
    """`text` in a colour, if `out` is a terminal that should have any (https://no-color.org)."""
    plain = not out.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return text if plain else f"\033[{CODES[colour]}m{text}\033[0m"


def size(count: float) -> str:
    """Bytes: `1.08 GB`."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count / 1e3:.3g} kB"


def wrapped(pieces: Iterable[str], width: int) -> Iterator[str]:
    """The text with a line end instead of the space before a word that would reach beyond `width` columns.

    A word is given when it is whole; one that is wider than a line is cut. Blanks at the end of a line, which nobody
    sees, are left out.

    Example:
        >>> "".join(wrapped(["one tw", "o three"], 8))
        'one two\\nthree'
    """
    column, gap, word = 0, "", ""
    for char in chain.from_iterable(pieces):
        if word and (char.isspace() or columns(word + char) > width):
            column, text = _placed(column, gap, word, width)
            yield text
            gap = word = ""
        if not char.isspace():
            word += char
        elif char == "\n":
            yield char
            column, gap = 0, ""
        else:
            gap += char
    if word:
        yield _placed(column, gap, word, width)[1]


def _placed(column: int, gap: str, word: str, width: int) -> tuple[int, str]:
    """The column behind a word, and the word with what stands before it."""
    end = column + columns(gap) + columns(word)
    return (columns(word), f"\n{word}") if column and end > width else (end, gap + word)


def columns(text: str) -> int:
    """That a text takes on a terminal: two for a wide character, none for a mark on the one before."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
