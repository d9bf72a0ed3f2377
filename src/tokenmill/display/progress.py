"""How far a long piece of work is: a bar on a terminal, a line now and then in a log, nothing for short work."""

import sys
import time
from typing import Self

from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

from tokenmill.core.units import duration, si
from tokenmill.display.terminal import console

QUIET = 2.0
"""Seconds of work before anything is shown."""

LINE_EVERY = 10.0
"""Seconds between two lines in a log."""


class Progress:
    """Counted work, shown on stderr.

    Example:
        with Progress("clean", total=12_000_000, unit="B") as progress:
            progress.advance(1_048_576)
    """

    def __init__(self, title: str, total: int, unit: str = "B") -> None:
        self._title, self._total, self._unit = title, total, unit
        self._done = 0
        self._last_line = -1
        self._start = self._shown = time.monotonic()
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        self._start = self._shown = time.monotonic()
        return self

    def advance(self, n: int) -> None:
        """Count another `n` units as done."""
        self._done += n
        if sys.stderr.isatty():
            self._update_bar()
        elif time.monotonic() - self._shown >= LINE_EVERY:
            self._print_line()

    def note(self, sentence: str) -> None:
        """Say what happens beside the count; nothing during short work."""
        if self._bar is not None:
            self._bar.console.print(sentence)
        elif self._is_long():
            print(sentence, file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._is_long() and self._done != self._last_line:
            self._print_line()

    def _is_long(self) -> bool:
        return time.monotonic() - self._start >= QUIET

    def _update_bar(self) -> None:
        if self._bar is None and self._is_long():
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[state]}"))
            self._bar = Bar(*columns, console=console(sys.stderr), expand=True)
            self._bar.add_task(self._title, total=self._total, state="")
            self._bar.start()
        if self._bar is not None:
            self._bar.update(TaskID(0), completed=self._done, state=self._state())

    def _print_line(self) -> None:
        self._shown, self._last_line = time.monotonic(), self._done
        print(f"{self._title}: {self._state()}", file=sys.stderr, flush=True)

    def _state(self) -> str:
        """Such as `1 MB of 4 MB (25%), 100 kB/s, 10 s, 30 s left`."""
        seconds = max(time.monotonic() - self._start, 1e-9)
        rate = self._done / seconds
        left = f", {duration((self._total - self._done) / rate)} left" if 0 < self._done < self._total else ""
        share = f" ({self._done / self._total:.0%})" if self._total else ""
        return (
            f"{si(self._done, self._unit)} of {si(self._total, self._unit)}{share}, {si(rate, self._unit)}/s, "
            f"{duration(seconds)}{left}"
        )
