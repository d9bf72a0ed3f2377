"""What a person sees of a training: the plan once, then a live line, or plain lines in a log file."""

import sys
import time
from collections.abc import Sequence
from typing import Protocol, TextIO

from tqdm import tqdm

from tokenmill.core.units import duration
from tokenmill.costs import Cost, CostParams

PLAIN_EVERY = 10.0
"""Seconds between two lines of progress where the output is not a terminal."""


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
        self._bar: tqdm | None = None
        self._shown_at = 0.0
        self._total = 0

    def say(self, sentence: str) -> None:
        """A sentence of its own line, above the live one."""
        tqdm.write(sentence, file=self._out) if self._bar else print(sentence, file=self._out, flush=True)

    def start(self, plan: Sequence[tuple[str, str]], *, step: int, total: int, prices: CostParams) -> None:
        """Say once what is about to happen, then begin at `step` of `total`."""
        self._prices = prices
        width = max(len(name) for name, _ in plan)
        for name, text in plan:
            print(f"  {name:<{width}}  {text}", file=self._out)
        self._total = total
        self._first, self._began = step, time.monotonic()
        self._shown_at = self._began
        if self._out.isatty():
            form = "{percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} steps  {postfix}"
            self._bar = tqdm(
                total=total, initial=step, bar_format=form, file=self._out, dynamic_ncols=True, leave=False
            )

    def interval(self, row: Row, tokens_per_second: float, spent: Cost) -> None:
        """Show where the run stands, what it has taken over all sessions, and what is still to come."""
        text = f"loss {row.loss:.3f}  {tokens_per_second:,.0f} tokens/s"
        now = time.monotonic()
        left = (now - self._began) / (row.step - self._first) * (self._total - row.step)
        costs = (
            f"spent {amounts(spent, self._prices.currency)}; "
            f"{amounts(self._prices.cost_of(left), self._prices.currency)} to come, until {clock(left)}"
        )
        if self._bar is not None:
            self._bar.set_postfix_str(f"{text}  {costs}", refresh=False)
            self._bar.update(row.step - self._bar.n)
        elif now - self._shown_at >= PLAIN_EVERY:
            self._shown_at = now
            self.say(f"  step {row.step:,}/{self._total:,}  epoch {row.epoch:.2f}  {text}  {costs}")

    def epoch(self, row: EpochEnd) -> None:
        """Show an epoch's result, on a line that stays."""
        self.say(
            f"  epoch {row.epoch}: train loss {row.train_loss:.3f}, validation loss {row.val_loss:.3f}, "
            f"{row.val_bits_per_byte:.3f} bits per byte"
        )

    def close(self) -> None:
        """Take the live line away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def amounts(spent: Cost, currency: str) -> str:
    """What is known of it: `3.2 h, 6.3 units, 1.18 EUR`."""
    parts = [duration(spent.seconds)]
    if spent.units is not None:
        parts.append(f"{spent.units:.3g} units")
    if spent.money is not None:
        parts.append(f"{spent.money:,.2f} {currency}")
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """The time of day in so many seconds, with the day if it is not today."""
    end = time.localtime(time.time() + seconds)
    today = time.localtime()[:3] == end[:3]
    return time.strftime("%H:%M" if today else "%a %d %b %H:%M", end)
