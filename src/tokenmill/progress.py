"""The progress of long work and of training: a bar on a terminal, a line now and then in a log.

It draws through `tokenmill.display`, and is apart from it because most commands need neither a live
bar nor its import.
"""

import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self, TextIO

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

from tokenmill.display import console, print_columns, say
from tokenmill.words.units import counted, duration, money, size

if TYPE_CHECKING:  # commands show nothing of costs without pydantic
    from tokenmill.costs import Cost, CostParams

QUIET = 2.0
"""Seconds of work before any progress is shown."""

LINE_EVERY = 10.0
"""Seconds between two lines of progress in a log."""

DRAW_EVERY = 0.1
"""Seconds between two drawings of the live bar of training."""

YEAR = 365 * 86_400.0
"""Seconds of a year."""


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
        first, *_ = fact_lines(facts, self._live.console.width, gap=2, indent=8)
        steps = f"step {step:,} of {self._total:,}  epoch {epoch:.2f}"
        self._bar.update(self._task, completed=step, description=steps)
        self._live.update(Group(self._bar, first), refresh=True)

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


def fact_lines(facts: Iterable[str], width: int, *, gap: int, indent: int = 0) -> list[str]:
    """Facts beside each other, on lines that break only between them."""
    whole = (" " * gap).join(fact.replace(" ", "\xa0") for fact in facts)
    lines = textwrap.wrap(whole, width, initial_indent=" " * indent)
    return [line.replace("\xa0", " ") for line in lines]


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
