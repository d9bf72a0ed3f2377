"""What training costs (hours, purchased units, money), and the two tables of these costs.

`timing.csv`, beside the checkpoints, has a row for every few steps: the sums over all sessions and
machines, each at its own price, lost steps included. `costs.csv` has a row for every epoch and
follows from it. Both differ from run to run, so DVC tracks neither; metrics/ has copies for the
plots. What is unknown is None, or an empty cell; nothing is estimated.
"""

import contextlib
import itertools
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from tokenmill.core.errors import UserError
from tokenmill.core.files import append_text, read_bytes, write_atomic, write_text
from tokenmill.core.params import Section
from tokenmill.formats.records import parse_rows

if TYPE_CHECKING:
    import pandas as pd
# epoch_costs imports pandas when it is called, because it takes 0.2 to 0.4 s, and training needs it
# only at its end.

TIMES = TIMING, COSTS = "timing.csv", "costs.csv"
AMOUNTS = ["seconds", "units", "money"]


def _way_out(path: Path) -> str:
    return f"`rm {quote(str(path))}`: it holds nothing but times"


class CostParams(Section):
    """The section `runtime.cost`: what an hour of this machine costs; null is not shown."""

    price_per_hour: float | None = Field(ge=0)
    """Money for an hour of this machine, all its GPUs together."""

    currency: str = Field(min_length=1, max_length=8)
    """What `price_per_hour` is counted in."""

    units_per_hour: float | None = Field(ge=0)
    """Units that an hour takes from a balance, such as Colab's compute units."""

    def cost_of(self, seconds: float) -> "Cost":
        """The cost of this many seconds on this machine."""
        hours = seconds / 3600
        units = None if self.units_per_hour is None else hours * self.units_per_hour
        money = None if self.price_per_hour is None else hours * self.price_per_hour
        return Cost(seconds, units, money)


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class TimingRow:
    """A row of timing.csv: the sums up to a step. None means unknown."""

    step: Annotated[int, Field(ge=1, lt=1 << 53)]
    seconds: Amount
    tokens_per_second: Amount
    units: Amount | None
    money: Amount | None

    @property
    def cost(self) -> "Cost":
        """The three sums as a cost."""
        return Cost(self.seconds, self.units, self.money)


@dataclass(frozen=True)
class CostRow:
    """A row of costs.csv, for one epoch."""

    epoch: Annotated[int, Field(ge=1, lt=1 << 53)]
    seconds: Amount
    hours: Amount
    units: Amount | None
    money: Amount | None
    currency: str
    flops: Amount
    utilisation: Amount | None

    @property
    def cost(self) -> "Cost":
        """The cost of the epoch."""
        return Cost(self.seconds, self.units, self.money)


@dataclass(frozen=True)
class Cost:
    """The cost of some work. None means unknown, and counts as zero when it is added to a
    number."""

    seconds: float = 0.0
    units: float | None = None
    money: float | None = None

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.seconds + other.seconds,
            _plus(self.units, other.units),
            _plus(self.money, other.money),
        )

    @classmethod
    def of(cls, row: Any) -> "Cost":
        """The cost in a row of the table that `epoch_costs` returns, where NaN means unknown."""
        units, money = (
            None if math.isnan(row[name]) else float(row[name]) for name in ("units", "money")
        )
        return cls(float(row["seconds"]), units, money)


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None and b is None else (a or 0.0) + (b or 0.0)


class Timing:
    """Appends a row per interval to `timing.csv` in a run's checkpoint folder."""

    def __init__(self, folder: Path | None, *, step: int, tokens: int, prices: CostParams):
        """Start or continue after `step` and `tokens`. Without a folder nothing is written.

        Rows of later steps are removed, because those steps are done again. Their cost stays in the
        sums.
        """
        self.path = folder / TIMING if folder else None
        self._prices = prices
        self.total = Cost()
        if self.path:
            self._continue(self.path, step)
        self._tokens = tokens
        self._rate_from = self._cost_from = time.perf_counter()

    def _continue(self, path: Path, step: int) -> None:
        lines = [",".join(column.name for column in fields(TimingRow)) + "\n"]
        for row in read_timing(path):
            self.total = row.cost
            if row.step <= step:
                lines.append(_timing_line(row.step, row.cost, row.tokens_per_second))
        write_text(path, "".join(lines))

    def interval(self, *, step: int, tokens: int) -> float:
        """Close an interval at `step`, after `tokens` tokens since the run began. Return tokens per
        second."""
        now = time.perf_counter()
        rate = (tokens - self._tokens) / (now - self._rate_from)
        self.total += self._prices.cost_of(now - self._cost_from)
        self._rate_from = self._cost_from = now
        self._tokens = tokens
        if self.path:
            append_text(self.path, _timing_line(step, self.total, rate))
        return rate

    @contextlib.contextmanager
    def excluded(self) -> Iterator[None]:
        """Leave the time inside the block (validation, checkpoints) out of the rate, but not out of
        the cost."""
        began = time.perf_counter()
        yield
        self._rate_from += time.perf_counter() - began


def _timing_line(step: int, total: Cost, tokens_per_second: float) -> str:
    units, money = ("" if value is None else f"{value:.6g}" for value in (total.units, total.money))
    return f"{step},{total.seconds:.3f},{tokens_per_second:.0f},{units},{money}\n"


def read_timing(path: Path) -> list[TimingRow]:
    """The rows of `timing.csv`; none if there is no such file. A last line that a crash cut off is
    left out."""
    content = read_bytes(path, follow=False) if os.path.lexists(path) else b""
    rows = parse_rows(
        content[: content.rfind(b"\n") + 1], TimingRow, source=path, way_out=_way_out(path)
    )
    if any(one.step >= next_.step for one, next_ in itertools.pairwise(rows)):
        raise UserError(f"{path} is damaged (its steps go back); {_way_out(path)}.")
    return rows


def find_times(resume: Path, run: str, name: str) -> Path:
    """The path of a table of TIMES of a run: with its checkpoints, or where it was left when they
    were removed. It may not exist."""
    with_checkpoints = resume / run / name
    return with_checkpoints if with_checkpoints.exists() else resume / f"{run}.{name}"


def publish_times(resume: Path, run: str, folder: Path) -> None:
    """Copy the tables of the run `run` (its fingerprint) to the folder where plots read them.
    Tables of another run are removed."""
    for name in TIMES:
        table = find_times(resume, run, name)
        if table.exists():
            with write_atomic(folder / name) as file:
                file.write(read_bytes(table, follow=False))
        else:
            (folder / name).unlink(missing_ok=True)


def epoch_costs(
    timing: Sequence[TimingRow],
    *,
    steps_per_epoch: int,
    flops_per_epoch: float,
    peak: float | None,
    currency: str,
) -> "pd.DataFrame":
    """The cost of every epoch that `timing` covers from its first to its last step.

    Repeated steps are included. The validation after an epoch counts with the next one. `flops` are
    the floating-point operations of the forward and backward passes. `utilisation` is their share
    of `peak`, the device's operations per second (model FLOPs utilisation; PaLM, appendix B), or
    unknown.
    """
    import pandas as pd  # noqa: PLC0415 (see above)

    rows = [astuple(row.cost) for row in timing if row.step % steps_per_epoch == 0]
    steps = [row.step for row in timing if row.step % steps_per_epoch == 0]
    ends = pd.DataFrame(rows, index=pd.Index(steps, dtype=int), columns=AMOUNTS, dtype=float)
    ends = ends.reindex([0, *ends.index], fill_value=0.0)  # the run's beginning
    is_whole = ends.index.to_series().diff() == steps_per_epoch
    costs = (ends - ends.shift().fillna(0.0)).loc[is_whole]
    costs.insert(0, "epoch", (costs.index // steps_per_epoch).astype(int))
    costs.insert(2, "hours", costs["seconds"] / 3600)
    costs["currency"] = currency
    costs["flops"] = flops_per_epoch
    costs["utilisation"] = flops_per_epoch / costs["seconds"] / (peak or math.nan)
    return costs.reset_index(drop=True)


def write_costs(path: Path, costs: "pd.DataFrame") -> None:
    """Write the table of costs by epoch."""
    write_text(path, costs.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def read_costs(path: Path) -> list[CostRow]:
    """The table that `write_costs` wrote; empty if there is no such file."""
    content = read_bytes(path) if path.exists() else b""
    return parse_rows(content, CostRow, source=path, way_out=_way_out(path))
