"""What a terminal or a log shows: colours, aligned columns, wrapped text, and the progress of long
work and of training.

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
import textwrap
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tokenmill.words.units import counted, duration, message, money, size, visible, visible_stream

if TYPE_CHECKING:  # commands show nothing of costs without pydantic
    from tokenmill.costs import Cost, CostParams

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

QUIET = 2.0
"""Seconds of work before any progress is shown."""

LINE_EVERY = 10.0
"""Seconds between two lines of progress in a log."""

DRAW_EVERY = 0.1
"""Seconds between two drawings of the live bar of training."""

YEAR = 365 * 86_400.0
"""Seconds of a year."""


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
    out: TextIO | None = None,
) -> None:
    """Print rows of cells in aligned columns. On a terminal the last column wraps instead of
    running over the edge; where it would be too narrow, it stands below the others.

    Args:
        rows: rows of as many cells each. A `Text` may have colours.
        right: the columns, counted from 0, that are aligned to the right. They are figures, so the
            columns that a terminal has no room for stand in a table below, after the first one.
        gap: the number of blanks between two columns.
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
    for number, part in enumerate(side_by_side(widths, limit)):
        table = Table.grid(padding=(0, gap, 0, 0))
        for column in part:
            justify = "right" if column in right else "left"
            table.add_column(justify=justify, no_wrap=column < last, overflow="fold")
        for row in zip(*(columns[column] for column in part), strict=True):
            table.add_row(*row)
        wide = max(limit, sum(widths[column] for column in part)) - gap
        print_blocks([Text()] * (number > 0) + [table], console(out, width=wide))


def side_by_side(widths: Sequence[int], limit: int) -> list[list[int]]:
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


class Progress:
    """Counted work, shown on stderr: as a bar on a terminal, as a line now and then in a log, and
    not at all if the work is short.

    Args:
        title: what is done.
        total: how many bytes or things there are.
        noun: the name of one thing; bytes are counted without one.
    """

    def __init__(self, title: str, total: int, noun: str = "") -> None:
        self._title = title
        self._total = total
        self._noun = noun
        self._done = 0
        self._printed = -1
        self._start = self._shown = time.monotonic()
        self._is_drawn = console(sys.stderr).draws
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        return self

    def advance(self, n: int) -> None:
        """Count another `n` bytes or things as done."""
        self._done += n
        if self._is_drawn:
            self._draw()
        elif time.monotonic() - self._shown >= LINE_EVERY:
            self._print_line()

    def end(self) -> None:
        """Take what is done for the total, which was an upper bound."""
        if self._done < self._total:
            self._total = self._done
            self._printed = -1
            self.advance(0)

    def note(self, sentence: str) -> None:
        """Print a sentence about the work besides its count; nothing during short work."""
        if self._bar is not None:
            self._bar.console.print(sentence)
        elif self._is_long():
            say(sentence, out=sys.stderr)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._is_long() and self._done != self._printed:
            self._print_line()

    def _is_long(self) -> bool:
        return time.monotonic() - self._start >= QUIET

    def _draw(self) -> None:
        if self._bar is None and self._is_long():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[state]}"),
            )
            self._bar = Bar(*columns, console=console(sys.stderr), expand=True)
            self._bar.add_task(self._title, total=self._total, state="")
            self._bar.start()
        if self._bar is not None:
            self._bar.update(
                TaskID(0), total=self._total, completed=self._done, state=self._state()
            )

    def _print_line(self) -> None:
        self._shown = time.monotonic()
        self._printed = self._done
        say(f"{self._title}: {self._state()}", out=sys.stderr)

    def _state(self) -> str:
        """The progress in words, such as `1 MB of 4 MB (25%), 100 kB/s, 10 s, 30 s left`."""
        seconds = max(time.monotonic() - self._start, 1e-9)
        rate = self._done / seconds
        share = f" ({self._done / self._total:.0%})" if self._total else ""
        if self._noun:
            amount = f"{self._done:,} of {counted(self._total, self._noun)}{share}"
        else:
            amount = f"{size(self._done)} of {size(self._total)}{share}, {size(rate)}/s"
        left = ""
        if 0 < self._done < self._total:
            left = f", {duration((self._total - self._done) / rate)} left"
        return f"{amount}, {duration(seconds)}{left}"


class TrainingDisplay:
    """The view of training on `out` or stderr: its plan, then a live bar or a line now and then."""

    def __init__(self, out: TextIO | None = None):
        self._out = out or sys.stderr
        self._live: Live | None = None

    def say(self, sentence: str) -> None:
        """Print a sentence on a line of its own, above the live bar."""
        if self._live:
            self._live.console.print(sentence)
        else:
            say(sentence, out=self._out)

    def start(
        self, plan: Sequence[tuple[str, str]], *, step: int, total: int, prices: "CostParams"
    ) -> None:
        """Print the plan, which is pairs of a name and a fact, then start at `step` of `total`."""
        self._prices = prices
        self._total = total
        self._shown_at = time.monotonic()
        self.began(step)
        print_columns([(f"  {name}", text) for name, text in plan], out=self._out)
        if console(self._out).draws:
            columns = (
                TextColumn("  {task.percentage:3.0f}%"),
                BarColumn(None),
                TextColumn("{task.description}"),
            )
            self._bar = Bar(*columns, expand=True)
            self._task = self._bar.add_task(
                f"step {step:,} of {total:,}", total=total, completed=step
            )
            self._live = Live(
                self._bar, console=console(self._out), auto_refresh=False, transient=True
            )
            self._live.start(refresh=True)

    def began(self, step: int) -> None:
        """Reckon the remaining time from here on; the first step, which compiles, is over."""
        self._first = step
        self._began = time.monotonic()

    def interval(
        self, *, step: int, epoch: float, loss: float, tokens_per_second: float, spent: "Cost"
    ) -> None:
        """Show loss, speed, the cost of all sessions so far, and the remaining time and cost."""
        now = time.monotonic()
        waited = now - self._shown_at
        if step == self._first or waited < (DRAW_EVERY if self._live else LINE_EVERY):
            return
        self._shown_at = now
        left = (now - self._began) / (step - self._first) * (self._total - step)
        to_come = self._prices.cost_of(left)
        state = f"loss {loss:.3f}"
        speed = f"{tokens_per_second:,.0f} tokens/s"
        if self._live is None:
            costs = f"spent {amounts(spent)}; {amounts(to_come)} to come, until {clock(left)}"
            self.say(
                f"  step {step:,}/{self._total:,}  epoch {epoch:.2f}  {state}  {speed}  {costs}"
            )
            return
        paid = f"{_paid(spent) or duration(spent.seconds)} spent"
        to_pay = [f"{_paid(to_come)} to come"] if _paid(to_come) else []
        facts = [state, speed, f"{duration(left)} left", paid, *to_pay, f"until {clock(left)}"]
        steps = f"step {step:,} of {self._total:,}  epoch {epoch:.2f}"
        self._bar.update(self._task, completed=step, description=steps)
        self._live.update(
            Group(self._bar, _first_line(facts, self._live.console.width)), refresh=True
        )

    def epoch(
        self, epoch: int, *, train_loss: float, val_loss: float, bits_per_byte: float
    ) -> None:
        """Show an epoch's result, on a line that stays."""
        losses = (
            f"train loss {train_loss:.3f}, validation loss {val_loss:.3f}, "
            f"{bits_per_byte:.3f} bits per byte"
        )
        self.say(f"  epoch {epoch}: {losses}")

    def close(self) -> None:
        """Remove the live bar."""
        if self._live:
            self._live.stop()
            self._live = None


def _first_line(facts: Sequence[str], width: int) -> str:
    """As many of the facts as fit on one line. They are ordered by importance."""
    # A line breaks only between facts
    whole = "  ".join(fact.replace(" ", "\xa0") for fact in facts)
    return textwrap.wrap(whole, width, initial_indent=" " * 8)[0].replace("\xa0", " ")


def amounts(spent: "Cost") -> str:
    """The known parts of a cost: `3.2 h, 6.3 units, 1.18 EUR`."""
    return ", ".join([duration(spent.seconds), *filter(None, [_paid(spent)])])


def _paid(spent: "Cost") -> str:
    """The known parts of units and money: `6.3 units, 1.18 EUR`; empty if neither is known."""
    units = [] if spent.units is None else [f"{spent.units:.3g} units"]
    return ", ".join(units if spent.money is None else [*units, money(spent.money, spent.currency)])


def clock(seconds: float) -> str:
    """The time of day after this many seconds, with the date if it is not today; the year alone if
    it is a year away."""
    now = time.time()
    if seconds > YEAR:  # a clock of the system may not know so late a date
        today = time.localtime(now)
        return f"{today.tm_year + int((today.tm_yday + seconds / 86_400) / 365.25):.5g}"
    end = time.localtime(now + seconds)
    is_today = time.localtime(now)[:3] == end[:3]
    return time.strftime("%H:%M" if is_today else "%a %d %b %H:%M", end)
