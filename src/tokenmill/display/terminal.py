"""Text on a terminal: colours, columns, and lines that end between words; in a pipe or a file, plain text.

rich decides what a terminal can show: NO_COLOR and TERM=dumb are obeyed. Markup is off, so brackets in a text are only
brackets.
"""

import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tokenmill.core.units import visible

UNLIMITED = 1000
"""Columns of a line in a pipe or a file, which never breaks."""


def console(out: TextIO | None = None) -> Console:
    """A rich console that prints on `out`, or on stdout."""
    file: TextIO = sys.stdout if out is None else out
    width = None if file.isatty() else UNLIMITED
    return Console(file=file, width=width, markup=False, highlight=False, emoji=False)


def note(sentence: str) -> None:
    """Print a sentence about the program's work on stderr, dimmed on a terminal; nothing if it is empty."""
    if sentence:
        console(sys.stderr).print(visible(sentence), style="dim")


def print_columns(
    rows: Iterable[Sequence[str | Text]], *, right: Collection[int] = (), gap: int = 2, out: TextIO | None = None
) -> None:
    """Print rows of cells in aligned columns; on a terminal the last column wraps instead of running over the edge.

    Args:
        rows: cells; a `Text` may have colours. What is invisible in a `str` is made visible.
        right: the columns, counted from 0, that are aligned to the right.
        gap: blanks between two columns.
        out: stdout if not given.
    """
    cells = [[cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row] for row in rows]
    table = Table.grid(padding=(0, gap, 0, 0))
    last = max(map(len, cells), default=1) - 1
    for number in range(last + 1):
        table.add_column(justify="right" if number in right else "left", no_wrap=number < last, overflow="fold")
    for row in cells:
        table.add_row(*row)
    screen = console(out)
    with screen.capture() as captured:
        screen.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip(), file=screen.file, flush=True)


def print_stream(pieces: Iterable[str]) -> None:
    """Print a text on stdout while its pieces come; on a terminal, wrapped and with nothing invisible in it."""
    if sys.stdout.isatty():
        pieces = wrapped(map(visible, pieces), shutil.get_terminal_size().columns)
    for piece in pieces:
        print(piece, end="", flush=True)
    print(flush=True)


def rate(tokens: int, seconds: float) -> str:
    """How much was written, and how fast: `30 tokens in 0.50 s, 60 tokens/s`."""
    if not seconds:
        return f"{tokens} tokens"
    return f"{tokens:,} tokens in {seconds:.2f} s, {tokens / seconds:,.0f} tokens/s"


def wrapped(pieces: Iterable[str], width: int) -> Iterator[str]:
    """The text with a line feed instead of the blank before a word that would reach beyond `width` columns.

    A word is yielded as soon as it is complete; one that is wider than a line is cut. Blanks at the end of a line are
    left out.

    Example:
        >>> "".join(wrapped(["one tw", "o three"], 8))
        'one two\\nthree'
    """
    column, gap, word = 0, "", ""
    for char in chain.from_iterable(pieces):
        if word and (char.isspace() or cell_len(word + char) > width):
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
    """The column after a word, and the word with the blanks or the line feed before it."""
    end = column + cell_len(gap) + cell_len(word)
    return (cell_len(word), f"\n{word}") if column and end > width else (end, gap + word)
