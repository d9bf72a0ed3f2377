"""What a terminal or a log shows: colours, aligned columns, wrapped text.

All that TokenMill prints passes through here, and with it all foreign text: names, parameters, what
other programs say. Of it no invisible character and no password of an address reaches a terminal or
a log. Only what a model writes reaches a pipe as it is.

rich decides what a terminal can show: NO_COLOR and TERM=dumb are obeyed. Markup is off, so brackets
in a text are only brackets. A pipe or a file gets plain text. Nothing here changes a result, so DVC
does not track it.
"""

import contextlib
import itertools
import json
import math
import shutil
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tokenmill.words.units import counted, message, visible, visible_stream

UNLIMITED = 1000
"""The width in columns of a pipe or a file, whose lines never break."""

LEAST_WIDTH = 24
"""The width in columns that the last column of a table has at least."""

INDENT = 4
"""The blanks before a cell that stands below the others of its row."""

LAST_WORDS = 10.0
"""Seconds that DVC has after its error. DVC 3.67 hangs after some, as of a git submodule in what it
imports."""

INTERRUPTED = 2.0
"""Seconds that a program has to end after an interrupt, which a terminal sends to it, too."""


class Screen(Console):
    """A rich console of which everything passes through `message`, also what has colours."""

    @property
    def draws(self) -> bool:
        """Whether a live view can be drawn here. A pipe, a file and a terminal that cannot move its
        cursor (TERM=dumb) get lines instead."""
        return self.file.isatty() and self.is_interactive

    def render_str(self, text: str, **options: Any) -> Text:
        """A string as `message` has it, before its lines break."""
        return super().render_str(message(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """The pieces of anything that rich can draw; rich's own control of the cursor stays."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else piece._replace(text=message(piece.text))

    def on_broken_pipe(self) -> None:
        """Raise what rich has caught, for `report_errors`; rich itself would end the process."""
        raise BrokenPipeError


def console(out: TextIO | None = None, *, width: int | None = None) -> Screen:
    """A rich console that prints on `out`, or on stdout.

    Args:
        out: the stream.
        width: in columns; that of the terminal, or unlimited in a pipe, if it is not given.
    """
    file: TextIO = sys.stdout if out is None else out
    if width is None and not file.isatty():
        width = UNLIMITED
    return Screen(file=file, width=width, markup=False, highlight=False, emoji=False)


def say(text: str = "", *, out: TextIO | None = None) -> None:
    """Print lines on `out`, or on stdout, without breaking them."""
    print(message(text), file=out, flush=True)


def print_record(record: Mapping[str, Any]) -> None:
    """Print a record as JSON, for programs. It is ASCII, so foreign text in it is escaped. A number
    that JSON does not have, such as the perplexity of a loss beyond 700, is null."""
    say(json.dumps(_in_json(record), indent=2, allow_nan=False))


def _in_json(value: Any) -> Any:
    """A value in which null stands for every number that is infinite or not a number."""
    if isinstance(value, Mapping):
        return {name: _in_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def note(sentence: str) -> None:
    """Print a sentence on stderr, dimmed on a terminal. An empty sentence prints nothing."""
    if sentence:
        console(sys.stderr).print(sentence, style="dim")


def print_blocks(blocks: Iterable[RenderableType], screen: Console) -> None:
    """Print blocks one below the other, without blanks at the ends of lines."""
    with screen.capture() as captured:
        for block in blocks:
            screen.print(block)
    for line in captured.get().splitlines():
        print(line.rstrip(), file=screen.file, flush=True)


def passed_on(command: Sequence[str]) -> int:
    """Run a program, print on stderr what it prints, and return its exit code. Where DVC has said
    its error, it is ended if it does not end; so is any program where this one is interrupted."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        end = threading.Timer(LAST_WORDS, process.kill)
        end.daemon = True
        try:
            for line in process.stdout:
                say(line.rstrip("\n"), out=sys.stderr)
                if line.startswith("ERROR: ") and end.ident is None:
                    end.start()
        except KeyboardInterrupt:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(INTERRUPTED)
            process.kill()
            process.wait()
            raise
    end.cancel()
    return process.returncode


def print_columns(
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Collection[int] = (),
    gap: int = 2,
    folds: bool = False,
    out: TextIO | None = None,
) -> None:
    """Print rows of cells in aligned columns. On a terminal the last column wraps instead of
    running over the edge; where it would be too narrow, it stands below the others.

    Args:
        rows: rows of as many cells each. A `Text` may have colours.
        right: the columns, counted from 0, that are aligned to the right. They are figures, so the
            columns that a terminal has no room for stand in a table below, after the first one.
        gap: the number of blanks between two columns.
        folds: whether a figure that is wider than the terminal goes on in the next line.
        out: the stream to print on; stdout if it is not given.
    """
    cells = [
        [cell if isinstance(cell, Text) else Text(message(cell)) for cell in row] for row in rows
    ]
    columns = list(zip(*cells, strict=True))
    last = len(columns) - 1
    widths = [max(cell.cell_len for cell in column) + gap for column in columns]
    if last not in right:
        widths[last] = min(widths[last], LEAST_WIDTH + gap)
    limit = console(out).width + gap  # the last column needs no gap
    if not right and sum(widths) > limit:
        print_blocks(_in_two_lines(cells, gap), console(out))
        return
    for number, part in enumerate(_side_by_side(widths, limit)):
        table = Table.grid(padding=(0, gap, 0, 0))
        for column in part:
            justify = "right" if column in right else "left"
            is_whole = column < last and not folds
            table.add_column(justify=justify, no_wrap=is_whole, overflow="fold")
        for row in zip(*(columns[column] for column in part), strict=True):
            table.add_row(*row)
        wide = limit if folds else max(limit, sum(widths[column] for column in part))
        print_blocks([Text()] * (number > 0) + [table], console(out, width=wide - gap))


def _side_by_side(widths: Sequence[int], limit: int) -> list[list[int]]:
    """The columns that fit beside each other: one list of them for each table, all with the first
    column.

    Args:
        widths: those of the columns, each with the gap behind it.
        limit: the width of the terminal and a gap.
    """
    parts = [[0]]
    for column in range(1, len(widths)):
        wider = [*parts[-1], column]
        if len(wider) > 2 and sum(widths[number] for number in wider) > limit:
            parts.append([0, column])
        else:
            parts[-1] = wider
    return parts


def _in_two_lines(rows: Iterable[Sequence[Text]], gap: int) -> Iterator[RenderableType]:
    """Each row as one line, and its last cell indented below."""
    for *first, last in rows:
        line = Text(" " * gap).join(first)
        if line.plain.strip():
            yield line
        if last.plain:
            yield Padding(last, (0, 0, 0, INDENT))


def print_stream(pieces: Iterable[str]) -> None:
    """Print a text on stdout while its pieces come. On a terminal it is wrapped, with invisible
    characters made visible."""
    if sys.stdout.isatty():
        pieces = wrapped(visible_stream(pieces), shutil.get_terminal_size().columns)
    for piece in pieces:
        print(piece, end="", flush=True)
    print(flush=True)


def rate(tokens: int, seconds: float) -> str:
    """The amount of text written and its speed: `30 tokens in 0.50 s, 60 tokens/s`."""
    speed = f" in {seconds:.2f} s, {tokens / seconds:,.0f} tokens/s" if seconds else ""
    return f"{counted(tokens, 'token')}{speed}"


def wrapped(pieces: Iterable[str], width: int) -> Iterator[str]:
    """The text with a line feed instead of the blank before a word that would reach beyond `width`
    columns.

    A word is yielded as soon as it is complete; one that is wider than a line is cut. Blanks at the
    end of a line are left out.

    Example:
        >>> "".join(wrapped(["one tw", "o three"], 8))
        'one two\\nthree'
    """
    column = 0
    gap = ""
    word = ""
    for char in itertools.chain(itertools.chain.from_iterable(pieces), [""]):
        is_blank = not char.strip()  # the end is one, too
        if word and (is_blank or cell_len(word + char) > width):
            if column and column + cell_len(gap + word) > width:
                column = 0
                gap = "\n"
            yield gap + word
            column += cell_len((gap + word).lstrip("\n"))
            gap = word = ""
        if char == "\n":
            yield char
            column = 0
            gap = ""
        elif is_blank:
            gap += char
        else:
            word += char


def shortened(text: str, width: int) -> str:
    """Text of a corpus or a model as one line of at most so many columns.

    It ends at a space if one is in its second half; scripts without spaces are cut between
    characters.

    Example:
        >>> shortened("one two\\nthree four", 16), shortened("そこで天皇がお歌いになつた歌", 16)
        ('one two three …', 'そこで天皇がお …')
    """
    line = " ".join(visible(text).split())
    if cell_len(line) <= width:
        return line
    cut = set_cell_size(line, width - 2)
    words = cut if line[len(cut)] == " " else cut.rpartition(" ")[0]
    return (words if 2 * cell_len(words) >= width else cut).rstrip() + " …"
