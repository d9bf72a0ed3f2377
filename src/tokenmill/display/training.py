"""What a person sees of training: its plan once, then a live bar on a terminal or a line now and then in a log."""

import sys
import time
from collections.abc import Sequence
from typing import Protocol, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tokenmill.core.units import duration
from tokenmill.costs import Cost, CostParams
from tokenmill.display.terminal import console, print_columns

LINE_EVERY = 10.0
"""Seconds between two lines of progress in a log."""

DRAW_EVERY = 0.1
"""Seconds between two drawings of the live bar."""


class Row(Protocol):
    """What is shown of an interval."""

    @property
    def step(self) -> int: ...  # noqa: D102
    @property
    def epoch(self) -> float: ...  # noqa: D102
    @property
    def loss(self) -> float: ...  # noqa: D102


class EpochEnd(Protocol):
    """What is shown of an epoch's end."""

    @property
    def epoch(self) -> int: ...  # noqa: D102
    @property
    def train_loss(self) -> float: ...  # noqa: D102
    @property
    def val_loss(self) -> float: ...  # noqa: D102
    @property
    def val_bits_per_byte(self) -> float: ...  # noqa: D102


class TrainingDisplay:
    """Draws on `out`; nothing here changes what is trained."""

    def __init__(self, out: TextIO | None = None):
        """Draw on `out`, or on stderr."""
        self._out = out or sys.stderr
        self._live: Live | None = None
        self._shown_at = 0.0
        self._total = 0

    def say(self, sentence: str) -> None:
        """Print a sentence on a line of its own, above the live bar."""
        if self._live:
            self._live.console.print(sentence)
        else:
            print(sentence, file=self._out, flush=True)

    def start(self, plan: Sequence[tuple[str, str]], *, step: int, total: int, prices: CostParams) -> None:
        """Print the plan, names and facts, then start at `step` of `total`."""
        self._prices, self._total = prices, total
        print_columns([(f"  {name}", text) for name, text in plan], out=self._out)
        self._first, self._began = step, time.monotonic()
        self._shown_at = self._began
        if self._out.isatty():
            bar = _Bar(step=step, total=total, epoch="", facts=[])
            self._live = Live(bar, console=console(self._out), auto_refresh=False, transient=True)
            self._live.start(refresh=True)

    def interval(self, row: Row, tokens_per_second: float, spent: Cost) -> None:
        """Show the loss, the speed, what all sessions cost so far, and the time and cost still to come."""
        now = time.monotonic()
        if now - self._shown_at < (DRAW_EVERY if self._live else LINE_EVERY):
            return
        self._shown_at = now
        left = (now - self._began) / (row.step - self._first) * (self._total - row.step)
        to_come = self._prices.cost_of(left)
        loss, speed = f"loss {row.loss:.3f}", f"{tokens_per_second:,.0f} tokens/s"
        currency = self._prices.currency
        if self._live:
            facts = [
                loss,
                speed,
                f"{duration(left)} left",
                f"{_paid(spent, currency) or duration(spent.seconds)} spent",
            ]
            facts += [f"{paid} to come" for paid in [_paid(to_come, currency)] if paid]
            facts.append(f"until {clock(left)}")
            bar = _Bar(step=row.step, total=self._total, epoch=f"{row.epoch:.2f}", facts=facts)
            self._live.update(bar, refresh=True)
        else:
            costs = f"spent {amounts(spent, currency)}; {amounts(to_come, currency)} to come, until {clock(left)}"
            self.say(f"  step {row.step:,}/{self._total:,}  epoch {row.epoch:.2f}  {loss}  {speed}  {costs}")

    def epoch(self, row: EpochEnd) -> None:
        """Show an epoch's result, on a line that stays."""
        self.say(
            f"  epoch {row.epoch}: train loss {row.train_loss:.3f}, validation loss {row.val_loss:.3f}, "
            f"{row.val_bits_per_byte:.3f} bits per byte"
        )

    def close(self) -> None:
        """Remove the live bar."""
        if self._live:
            self._live.stop()
            self._live = None


class _Bar:
    """A bar over the whole width, and below it as many of the facts as fit on one line, the most important first."""

    def __init__(self, *, step: int, total: int, epoch: str, facts: Sequence[str]):
        self._step, self._total, self._epoch, self._facts = step, total, epoch, facts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True)
        share, epoch = self._step / max(self._total, 1), f"  epoch {self._epoch}" if self._epoch else ""
        steps = f"step {self._step:,} of {self._total:,}{epoch}"
        grid.add_row(f"  {share:4.0%}", ProgressBar(total=self._total, completed=self._step), steps)
        yield grid
        line = Text("      ")
        for fact in self._facts:
            if line.cell_len + 2 + len(fact) <= options.max_width:
                line.append(f"  {fact}")
        if self._facts:
            yield line


def amounts(spent: Cost, currency: str) -> str:
    """What is known of a cost: `3.2 h, 6.3 units, 1.18 EUR`."""
    return ", ".join([duration(spent.seconds), *filter(None, [_paid(spent, currency)])])


def _paid(spent: Cost, currency: str) -> str:
    """Units and money, as far as they are known: `6.3 units, 1.18 EUR`, or nothing."""
    units = [] if spent.units is None else [f"{spent.units:.3g} units"]
    return ", ".join(units if spent.money is None else [*units, f"{spent.money:,.2f} {currency}"])


def clock(seconds: float) -> str:
    """The time of day in so many seconds, with the date if that is not today."""
    end = time.localtime(time.time() + seconds)
    today = time.localtime()[:3] == end[:3]
    return time.strftime("%H:%M" if today else "%a %d %b %H:%M", end)
