"""How far a long piece of work is: a bar on a terminal, a line now and then in a log, nothing for short work."""

import sys
import time
from typing import Self

from tqdm import tqdm

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
        self._lined = -1
        self._start = self._shown = time.monotonic()
        self._bar: tqdm | None = None

    def __enter__(self) -> Self:
        self._start = self._shown = time.monotonic()
        if sys.stderr.isatty():
            self._bar = tqdm(
                desc=self._title, total=self._total, unit=self._unit, unit_scale=True, delay=QUIET, file=sys.stderr
            )
        return self

    def advance(self, n: int) -> None:
        """Another `n` units are done."""
        self._done += n
        if self._bar is not None:
            self._bar.update(n)
        elif time.monotonic() - self._shown >= LINE_EVERY:
            self._line()

    def note(self, sentence: str) -> None:
        """Say what goes on beside the count; nothing for short work."""
        if self._bar is not None:
            self._bar.clear()
        if time.monotonic() - self._start >= QUIET:
            print(sentence, file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif time.monotonic() - self._start >= QUIET and self._done != self._lined:
            self._line()

    def _line(self) -> None:
        self._shown, self._lined = time.monotonic(), self._done
        seconds = max(self._shown - self._start, 1e-9)
        rate = self._done / seconds
        left = f", {(self._total - self._done) / rate:.0f} s left" if 0 < self._done < self._total else ""
        share = f" ({self._done / self._total:.0%})" if self._total else ""
        print(
            f"{self._title}: {_scaled(self._done)}{self._unit} of {_scaled(self._total)}{self._unit}{share}, "
            f"{_scaled(rate)}{self._unit}/s, {seconds:.0f} s{left}",
            file=sys.stderr,
            flush=True,
        )


def _scaled(number: float) -> str:
    """1234567 as "1.2 M"."""
    for prefix in ("", "k", "M", "G"):
        if abs(number) < 1000:
            return f"{number:.4g} {prefix}"
        number /= 1000
    return f"{number:.4g} T"
