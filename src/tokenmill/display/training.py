"""What a person sees of training: its plan once, then a live bar on a terminal or a line now and then in a log."""

import sys
import textwrap
import time
from collections.abc import Sequence
from typing import TextIO

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn

from tokenmill.core.units import duration, message
from tokenmill.costs import Cost, CostParams
from tokenmill.display.terminal import LINE_EVERY, console, print_columns

DRAW_EVERY = 0.1
"""Seconds between two drawings of the live bar."""


class TrainingDisplay:
    """Draws on `out`; nothing here changes what is trained."""

    def __init__(self, out: TextIO | None = None):
        """Draw on `out`, or on stderr."""
        self._out = out or sys.stderr
        self._live: Live | None = None

    def say(self, sentence: str) -> None:
        """Print a sentence on a line of its own, above the live bar."""
        if self._live:
            self._live.console.print(message(sentence))
        else:
            print(message(sentence), file=self._out, flush=True)

    def start(self, plan: Sequence[tuple[str, str]], *, step: int, total: int, prices: CostParams) -> None:
        """Print the plan, names and facts, then start at `step` of `total`."""
        self._prices, self._total, self._first = prices, total, step
        self._began = self._shown_at = time.monotonic()
        print_columns([(f"  {name}", text) for name, text in plan], out=self._out)
        if self._out.isatty():
            columns = TextColumn("  {task.percentage:3.0f}%"), BarColumn(None), TextColumn("{task.description}")
            self._bar = Progress(*columns, expand=True)
            self._task = self._bar.add_task(f"step {step:,} of {total:,}", total=total, completed=step)
            self._live = Live(self._bar, console=console(self._out), auto_refresh=False, transient=True)
            self._live.start(refresh=True)

    def interval(self, *, step: int, epoch: float, loss: float, tokens_per_second: float, spent: Cost) -> None:
        """Show the loss, the speed, what all sessions cost so far, and the time and cost still to come."""
        now = time.monotonic()
        if now - self._shown_at < (DRAW_EVERY if self._live else LINE_EVERY):
            return
        self._shown_at = now
        left = (now - self._began) / (step - self._first) * (self._total - step)
        to_come, currency = self._prices.cost_of(left), self._prices.currency
        state, speed = f"loss {loss:.3f}", f"{tokens_per_second:,.0f} tokens/s"
        if self._live is None:
            costs = f"spent {amounts(spent, currency)}; {amounts(to_come, currency)} to come, until {clock(left)}"
            self.say(f"  step {step:,}/{self._total:,}  epoch {epoch:.2f}  {state}  {speed}  {costs}")
            return
        paid = f"{_paid(spent, currency) or duration(spent.seconds)} spent"
        to_pay = [f"{_paid(to_come, currency)} to come"] if _paid(to_come, currency) else []
        facts = [state, speed, f"{duration(left)} left", paid, *to_pay, f"until {clock(left)}"]
        steps = f"step {step:,} of {self._total:,}  epoch {epoch:.2f}"
        self._bar.update(self._task, completed=step, description=steps)
        self._live.update(Group(self._bar, _first_line(facts, self._live.console.width)), refresh=True)

    def epoch(self, epoch: int, *, train_loss: float, val_loss: float, bits_per_byte: float) -> None:
        """Show an epoch's result, on a line that stays."""
        losses = f"train loss {train_loss:.3f}, validation loss {val_loss:.3f}, {bits_per_byte:.3f} bits per byte"
        self.say(f"  epoch {epoch}: {losses}")

    def close(self) -> None:
        """Remove the live bar."""
        if self._live:
            self._live.stop()
            self._live = None


def _first_line(facts: Sequence[str], width: int) -> str:
    """As many of the facts as fit on one line, the most important first."""
    whole = "  ".join(fact.replace(" ", "\xa0") for fact in facts)  # a line breaks only between facts
    return textwrap.wrap(whole, width, initial_indent=" " * 8)[0].replace("\xa0", " ")


def amounts(spent: Cost, currency: str) -> str:
    """What is known of a cost: `3.2 h, 6.3 units, 1.18 EUR`."""
    return ", ".join([duration(spent.seconds), *filter(None, [_paid(spent, currency)])])


def _paid(spent: Cost, currency: str) -> str:
    """Units and money, as far as they are known: `6.3 units, 1.18 EUR`, or nothing."""
    units = [] if spent.units is None else [f"{spent.units:.3g} units"]
    return ", ".join(units if spent.money is None else [*units, f"{spent.money:,.2f} {currency}"])


def clock(seconds: float) -> str:
    """The time of day after this many seconds, with the date if that is not today."""
    now = time.time()
    end = time.localtime(now + seconds)
    today = time.localtime(now)[:3] == end[:3]
    return time.strftime("%H:%M" if today else "%a %d %b %H:%M", end)
