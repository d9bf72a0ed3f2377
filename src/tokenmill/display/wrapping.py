"""Text for a terminal, broken between words while it comes."""

import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain


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
