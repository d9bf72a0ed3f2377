"""How long steps took on this machine: a table beside the checkpoints, never an artefact.

Times differ from run to run, so no stage's output holds them; `metrics/timing.csv` shows them to people and plots.
"""

import contextlib
import csv
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

COLUMNS = ("step", "seconds", "tokens_per_second")


class Timing:
    """Appends a row per interval to `timing.csv` in a run's folder of checkpoints."""

    def __init__(self, folder: Path | None, *, step: int, tokens: int):
        """Go on after `step` and so many tokens: rows of steps that will be done again are dropped.

        Without a folder nothing is written, as in a process that does not lead.
        """
        self.path = folder / "timing.csv" if folder else Path(os.devnull)
        self.spent = 0.0
        """Seconds of training so far, over all sessions that led here."""
        rows = [row for row in self._read() if int(row[0]) <= step]
        if rows:
            self.spent = float(rows[-1][1])
        with self.path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
        self._tokens, self._last = tokens, time.perf_counter()

    def _read(self) -> list[list[str]]:
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return [row for row in csv.reader(file) if len(row) == len(COLUMNS) and row[0].isdigit()]

    def interval(self, *, step: int, tokens: int) -> float:
        """Close an interval at `tokens` trained on since the start; give tokens per second."""
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        done, self._tokens = tokens - self._tokens, tokens
        self.spent += seconds
        rate = done / seconds
        with self.path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow([step, f"{self.spent:.3f}", f"{rate:.0f}"])
        return rate

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Leave out of the rates, but not of the total, what is done inside (validation, checkpoints)."""
        began = time.perf_counter()
        yield
        took = time.perf_counter() - began
        self.spent += took
        self._last += took

    def show(self, path: Path) -> None:
        """Copy the table to where plots look for it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.path, path)
