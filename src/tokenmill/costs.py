"""The section `train` (what is learned) of params.yaml, and training's part of `runtime` (how fast, never what).

What a training costs: hours, bought units, money, energy. What is not known stays unknown; nothing is guessed.

Prices are those of the session that spends the hours, so a run over several machines adds up what was really paid.
Like times, costs differ from run to run and are no artefact: they are columns of `timing.csv`.

How long steps took on this machine and what they cost: a table beside the checkpoints, never an artefact.

Times differ from run to run, so no stage's output holds them; `metrics/timing.csv` shows them to people and plots.

What each epoch of a training cost: `metrics/costs.csv`, which git ignores and no stage declares.

Joules that a device says it has taken, by its own counter; None where it does not say. Nothing is estimated.

NVIDIA GPUs since Volta count millijoules (NVML's `nvmlDeviceGetTotalEnergyConsumption`); Linux shows what a CPU package
counts (RAPL) under /sys/class/powercap, where permitted: that is all work of the package, not of this process alone.
"""

import contextlib
import csv
import ctypes
import io
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from pydantic import Field

from tokenmill.core.files import write_text
from tokenmill.core.params import Section


class CostParams(Section):
    """The section `runtime.cost`: what an hour of this machine costs. null is unknown, and then not shown."""

    price_per_hour: float | None = Field(ge=0)
    """Money for an hour of this machine, all its GPUs together."""

    currency: str = Field(min_length=1, max_length=8)
    """What `price_per_hour` is counted in."""

    units_per_hour: float | None = Field(ge=0)
    """Units that an hour takes from a balance, as Colab's compute units."""


Joules = Callable[[], float | None]
"""Joules since some moment, or None. Two readings differ by what was taken between them."""


@dataclass(frozen=True)
class Spent:
    """What some work took; None is unknown, and counts as nothing where it meets a number."""

    seconds: float = 0.0
    units: float | None = None
    money: float | None = None
    watt_hours: float | None = None

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.seconds + other.seconds,
            _plus(self.units, other.units),
            _plus(self.money, other.money),
            _plus(self.watt_hours, other.watt_hours),
        )


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None and b is None else (a or 0.0) + (b or 0.0)


def price(prices: CostParams, seconds: float, watt_hours: float | None = None) -> Spent:
    """What so many seconds take at these prices."""
    hours = seconds / 3600
    units = None if prices.units_per_hour is None else hours * prices.units_per_hour
    money = None if prices.price_per_hour is None else hours * prices.price_per_hour
    return Spent(seconds, units, money, watt_hours)


class Meter:
    """Prices the seconds of this session, and reads its energy."""

    def __init__(self, prices: CostParams, joules: Joules):
        """Begin to read the counter `joules` now."""
        self._prices, self._joules, self._last = prices, joules, joules()

    def charge(self, seconds: float) -> Spent:
        """What the last `seconds` took, since the last call."""
        now = self._joules()
        before, self._last = self._last, now
        watt_hours = None if now is None or before is None else (now - before) / 3600
        return price(self._prices, seconds, watt_hours)


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


COSTS = "costs.csv"


@dataclass(frozen=True)
class EpochCost:
    """What an epoch took, its repeated steps included; the validation after it counts with the next."""

    epoch: int
    seconds: float
    hours: float
    units: float | None
    money: float | None
    currency: str
    watt_hours: float | None
    flops: float
    """Floating-point operations of its forward and backward passes."""
    utilisation: float | None
    """Model FLOPs utilisation (PaLM, appendix B): `flops` by the peak of the device over these seconds."""

    @property
    def spent(self) -> Spent:
        """What can be added up."""
        return Spent(self.seconds, self.units, self.money, self.watt_hours)


def epoch_costs(
    rows: Sequence[TimeRow], *, steps_per_epoch: int, flops_per_epoch: float, peak: float | None, currency: str
) -> list[EpochCost]:
    """Costs of the epochs that `rows` of timing.csv cover from beginning to end.

    `peak` is the device's operations a second, or None.
    """
    at = {row.step: row.spent for row in rows} | {0: Spent()}
    last = max(at) // steps_per_epoch
    costs = []
    for epoch in range(1, last + 1):
        begin, end = at.get((epoch - 1) * steps_per_epoch), at.get(epoch * steps_per_epoch)
        if begin is None or end is None:
            continue
        seconds = end.seconds - begin.seconds
        costs.append(
            EpochCost(
                epoch=epoch,
                seconds=seconds,
                hours=seconds / 3600,
                units=_minus(end.units, begin.units),
                money=_minus(end.money, begin.money),
                currency=currency,
                watt_hours=_minus(end.watt_hours, begin.watt_hours),
                flops=flops_per_epoch,
                utilisation=flops_per_epoch / seconds / peak if peak else None,
            )
        )
    return costs


def _minus(end: float | None, begin: float | None) -> float | None:
    return None if end is None else end - (begin or 0.0)


def write_costs(path: Path, costs: Sequence[EpochCost]) -> None:
    """Write the table; an empty cell is unknown."""
    text = io.StringIO()
    table = csv.DictWriter(text, [column.name for column in fields(EpochCost)], lineterminator="\n")
    table.writeheader()
    for row in costs:
        table.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in asdict(row).items()})
    write_text(path, text.getvalue())


def read_costs(path: Path) -> list[EpochCost]:
    """The table that `write_costs` wrote; empty where there is none."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [_cost(row) for row in csv.DictReader(file)]


def _cost(row: dict[str, str]) -> EpochCost:
    def number(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    return EpochCost(
        epoch=int(row["epoch"]),
        seconds=float(row["seconds"]),
        hours=float(row["hours"]),
        units=number("units"),
        money=number("money"),
        currency=row["currency"],
        watt_hours=number("watt_hours"),
        flops=float(row["flops"]),
        utilisation=number("utilisation"),
    )


POWERCAP = Path("/sys/class/powercap")


def energy_counter(device: torch.device) -> Joules:
    """The counter of a device."""
    if device.type == "cuda":
        return _nvml(str(torch.cuda.get_device_properties(device).uuid))
    return rapl(POWERCAP) if device.type == "cpu" else unknown


def unknown() -> None:
    """The counter of a device that has none."""


def rapl(root: Path) -> Joules:
    """The sum over the CPU packages below `root`, each of which begins again at its own maximum."""
    packages = [_Package(folder) for folder in sorted(root.glob("intel-rapl:*")) if folder.name.count(":") == 1]

    def joules() -> float | None:
        try:
            return sum(package.joules() for package in packages) if packages else None
        except (OSError, ValueError):  # usually readable for root alone
            return None

    return joules


class _Package:
    """The counter of one CPU package."""

    def __init__(self, folder: Path):
        self._folder, self._last, self._turns = folder, 0, 0

    def joules(self) -> float:
        """Joules, made to grow also where the counter begins again."""
        now = int((self._folder / "energy_uj").read_text())
        if now < self._last:
            self._turns += int((self._folder / "max_energy_range_uj").read_text())
        self._last = now
        return (self._turns + now) / 1e6


def _nvml(uuid: str) -> Joules:
    """The counter of the GPU with this UUID."""
    try:
        library, handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        failed = library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
    except (OSError, AttributeError):
        return unknown
    if failed:
        return unknown

    def joules() -> float | None:
        millijoules = ctypes.c_ulonglong()
        failed = library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules))
        return None if failed else millijoules.value / 1e3

    return joules
