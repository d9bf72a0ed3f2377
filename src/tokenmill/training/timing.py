"""How long steps took on this machine and what they cost: a table beside the checkpoints, never an artefact.

Times differ from run to run, so no stage's output holds them; `metrics/timing.csv` shows them to people and plots.
"""

import contextlib
import csv
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenmill.training.cost import Meter, Spent

TIMING = "timing.csv"
COLUMNS = ("step", "seconds", "tokens_per_second", "units", "money", "watt_hours")


@dataclass(frozen=True)
class TimeRow:
    """An interval's end."""

    step: int
    spent: Spent
    """On this configuration so far, over all sessions and machines, lost steps included."""
    tokens_per_second: float
    """In this interval, validation and checkpoints left out."""

    def cells(self) -> list[str]:
        """The row as it stands in the table; an empty cell is unknown."""
        spent = self.spent
        known = ["" if value is None else f"{value:.6g}" for value in (spent.units, spent.money, spent.watt_hours)]
        return [str(self.step), f"{spent.seconds:.3f}", f"{self.tokens_per_second:.0f}", *known]

    @classmethod
    def of(cls, cells: list[str]) -> "TimeRow":
        """The inverse of `cells`; rows of a table without costs have unknown ones."""
        step, seconds, rate, units, money, watt_hours = (*cells, "", "", "")[: len(COLUMNS)]
        known = [float(cell) if cell else None for cell in (units, money, watt_hours)]
        return cls(int(step), Spent(float(seconds), *known), float(rate))


def read_timing(path: Path) -> list[TimeRow]:
    """The rows of a table of times; none where there is none, and a row that was cut off is left out."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        lines = [line for line in file if line.endswith("\n")]
    return [TimeRow.of(cells) for cells in csv.reader(lines) if len(cells) >= 3 and cells[0].isdigit()]


class Timing:
    """Appends a row per interval to `timing.csv` in a run's folder of checkpoints."""

    def __init__(self, folder: Path | None, *, step: int, tokens: int, meter: Meter):
        """Go on after `step` and so many tokens: rows of steps that will be done again go, what they took stays.

        Without a folder nothing is written, as in a process that does not lead.
        """
        self.path, self._meter = folder / TIMING if folder else Path(os.devnull), meter
        rows = read_timing(self.path)
        self.spent = rows[-1].spent if rows else Spent()
        with self.path.open("w", newline="") as file:
            kept = [row.cells() for row in rows if row.step <= step]
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *kept])
        self._tokens = tokens
        self._last = self._charged = time.perf_counter()

    def interval(self, *, step: int, tokens: int) -> float:
        """Close an interval at `tokens` trained on since the start; give tokens per second."""
        now = time.perf_counter()
        rate = (tokens - self._tokens) / (now - self._last)
        self.spent += self._meter.charge(now - self._charged)
        self._last = self._charged = now
        self._tokens = tokens
        with self.path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(TimeRow(step, self.spent, rate).cells())
        return rate

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Leave out of the rates, but not of what is spent, what is done inside (validation, checkpoints)."""
        began = time.perf_counter()
        yield
        self._last += time.perf_counter() - began

    def show(self, path: Path) -> None:
        """Copy the table to where plots look for it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.path, path)
