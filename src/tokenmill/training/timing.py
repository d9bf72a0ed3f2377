"""How long steps took on this machine: a table beside the checkpoints, never an artefact.

Times differ from run to run, so no stage's output holds them; `metrics/timing.csv` shows them to people and plots.
"""

import csv
import shutil
import time
from pathlib import Path

COLUMNS = ("step", "seconds", "tokens_per_second")


class Timing:
    """Appends a row per interval to `timing.csv` in a run's folder of checkpoints."""

    def __init__(self, folder: Path, *, step: int):
        """Go on after `step`: rows of steps that will be done again are dropped."""
        self.path = folder / "timing.csv"
        self.spent = 0.0
        """Seconds of training so far, over all sessions that led here."""
        rows = [row for row in self._read() if int(row[0]) <= step]
        if rows:
            self.spent = float(rows[-1][1])
        with self.path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
        self._last = time.perf_counter()

    def _read(self) -> list[list[str]]:
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return [row for row in csv.reader(file) if len(row) == len(COLUMNS) and row[0].isdigit()]

    def interval(self, *, step: int, tokens: int) -> float:
        """Close an interval in which `tokens` were trained on; give tokens per second."""
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        self.spent += seconds
        rate = tokens / seconds
        with self.path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow([step, f"{self.spent:.3f}", f"{rate:.0f}"])
        return rate

    def pause(self) -> None:
        """Leave out of the rates what was done since the last interval (validation, checkpoints)."""
        now = time.perf_counter()
        self.spent += now - self._last
        self._last = now

    def show(self, path: Path) -> None:
        """Copy the table to where plots look for it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.path, path)
