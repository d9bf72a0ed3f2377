"""What training costs (hours, purchased units, money), and the table of these costs.

`timing.csv`, beside the checkpoints, has a row for every few steps: the sums over all sessions and
machines, each at its own price, lost steps included. It only grows. Where a session continues from
an earlier step, the rows of lost steps stay until rows of the same steps follow, so that no kill
loses what was paid. Runs that differ in their number of steps alone share the table: what one took
is what was summed up when it ended, whatever a longer or shorter one does again later. Of one that
comes after a longer one it is what that took to the same step, if the table has the step. It
differs from run to run, so DVC does not track it; metrics/ has a copy for the plots, without the
lost steps, and beside it costs.csv, with a row for every epoch. What is unknown is None, or an
empty cell; nothing is estimated, and a sum of which a part is unknown is unknown. So a run whose
first steps were made elsewhere has no total, but its whole epochs have theirs.
"""

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from shlex import quote
from typing import Annotated

from pydantic import Field

from tokenmill.core.errors import UserError
from tokenmill.core.files import append_text, write_text
from tokenmill.core.params import Count, Finite, Positive, Section
from tokenmill.formats.records import csv_line, read_whole_rows, table

TIMING, COSTS = "timing.csv", "costs.csv"


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
        return Cost(seconds, units, money, self.currency)


Amount = Annotated[Finite, Field(ge=0)]


@dataclass(frozen=True)
class TimingRow:
    """A row of timing.csv: the sums up to a step. Those of units and money are of what had a price;
    None where the time since the row before had none."""

    step: Positive
    seconds: Amount
    tokens_per_second: Amount
    units: Amount | None
    money: Amount | None
    after: Count = 0
    """The step behind which the table is whole: 0, unless steps before were made where it was not
    kept."""
    currency: str | None = None
    """What money is counted in; None, as the next two, in a table from before it had the column."""
    step_flops: Amount | None = None
    """The floating-point operations of a step, forward and backward: the mean, as the last one of
    an epoch may be short."""
    peak_flops: Amount | None = None
    """The operations per second of all devices at their peak; None if they are not known."""


def spent(rows: Sequence[TimingRow], *, after: int = 0) -> "Cost":
    """What the steps behind step `after` took; unknown where a part of them had no price, or one in
    another currency."""
    earlier = [row for row in rows if row.step <= after]
    seconds = rows[-1].seconds - (earlier[-1].seconds if earlier else 0.0)

    def part(name: str) -> float | None:
        sums = [getattr(row, name) for row in rows[len(earlier) :]]
        return None if None in sums else sums[-1] - _priced(earlier, name)

    currencies = (row.currency for row in rows[len(earlier) :])
    return Cost(seconds, part("units"), *_in_one(part("money"), currencies))


def are_whole(rows: Sequence[TimingRow]) -> bool:
    """Whether there are rows, and their sums are of all steps of the run."""
    return bool(rows) and all(row.after == 0 for row in rows)


def _priced(rows: Sequence[TimingRow], name: str) -> float:
    """The units or money of what had a price."""
    return max((getattr(row, name) or 0.0 for row in rows), default=0.0)


@dataclass(frozen=True)
class CostRow:
    """A row of costs.csv, for one epoch."""

    epoch: Positive
    seconds: Amount
    hours: Amount
    units: Amount | None
    money: Amount | None
    currency: str | None
    flops: Amount | None
    """The floating-point operations of its steps, each counted once."""
    utilisation: Amount | None
    """The share of the devices' peak that these were (model FLOPs utilisation; PaLM, appendix B);
    None if the peak is not known, or the devices were not the same from first to last step."""

    @property
    def cost(self) -> "Cost":
        """The cost of the epoch."""
        return Cost(self.seconds, self.units, self.money, self.currency)


@dataclass(frozen=True)
class Cost:
    """The cost of some work. None means unknown, and so is its sum with a number. Money of two
    currencies has no sum."""

    seconds: float = 0.0
    units: float | None = None
    money: float | None = None
    currency: str | None = None

    def __add__(self, other: "Cost") -> "Cost":
        money = _plus(self.money, other.money)
        return Cost(
            self.seconds + other.seconds,
            _plus(self.units, other.units),
            *_in_one(money, [self.currency, other.currency]),
        )


NOTHING = Cost(0.0, units=0.0, money=0.0)
"""The cost of no work, to which sums add."""


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _in_one(
    money: float | None, currencies: Iterable[str | None]
) -> tuple[float | None, str | None]:
    """A sum of money with its currency; without both if it is of several."""
    known = set(currencies) - {None}
    return (None, None) if len(known) > 1 else (money, next(iter(known), None))


class Timing:
    """Appends a row per interval to `timing.csv` in a run's checkpoint folder."""

    def __init__(
        self,
        folder: Path | None,
        *,
        step: int,
        logged: int,
        tokens: int,
        prices: CostParams,
        step_flops: float | None = None,
        peak_flops: float | None = None,
    ):
        """Start, or continue the table that is there, with `step` steps of `tokens` done so far, of
        which `logged` is the last that ended an interval. Without a folder nothing is written.

        Steps behind the checkpoint are done again. Their cost stays in the sums. For the last two
        see `TimingRow`.
        """
        self.path = folder / TIMING if folder else None
        self._prices = prices
        self._flops = step_flops, peak_flops
        rows = _all_rows(find_times(folder.parent, folder.name)) if folder else []
        self.total = spent(rows) if rows else NOTHING
        is_here = rows and rows[-1].step >= logged
        self._after = min(step, rows[-1].after) if is_here else step
        self._priced = {name: _priced(rows, name) for name in ("units", "money")}
        if folder:
            write_text(folder / TIMING, _timing_table(rows))
        self._tokens = tokens
        self._rate = 0.0
        self._rate_from = self._cost_from = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The seconds of all sessions so far, with those of the interval that is not closed."""
        return self.total.seconds + time.perf_counter() - self._cost_from

    def interval(self, *, step: int, tokens: int) -> float:
        """Close an interval at `step`, after `tokens` tokens since the run began. Return tokens per
        second.

        Without a token more, as after a validation, the rate is that of the interval before. Before
        the first token, as where a run that had ended is ended again, there is no interval.
        """
        now = time.perf_counter()
        if tokens > self._tokens:
            self._rate = (tokens - self._tokens) / (now - self._rate_from)
        if not self._rate:
            return 0.0
        cost = self._prices.cost_of(now - self._cost_from)
        self.total += cost
        self._rate_from = self._cost_from = now
        self._tokens = tokens
        sums = dict[str, float | None](units=None, money=None)
        for name, taken in (("units", cost.units), ("money", cost.money)):
            if taken is not None:
                sums[name] = self._priced[name] = self._priced[name] + taken
        if self.path:
            paid = sums["units"], sums["money"]
            currency = " ".join(self._prices.currency.split())  # a line break would end the row
            facts = self._after, currency, *self._flops
            row = TimingRow(step, self.total.seconds, self._rate, *paid, *facts)
            append_text(self.path, _timing_line(row))
        return self._rate

    @contextlib.contextmanager
    def excluded(self) -> Iterator[None]:
        """Leave the time inside the block (validation, checkpoints) out of the rate, but not out of
        the cost."""
        began = time.perf_counter()
        yield
        self._rate_from += time.perf_counter() - began


def _timing_table(rows: Sequence[TimingRow]) -> str:
    head = csv_line(column.name for column in fields(TimingRow))
    return head + "".join(map(_timing_line, rows))


def _timing_line(row: TimingRow) -> str:
    units, money, *flops = (
        "" if value is None else f"{value:.9g}"
        for value in (row.units, row.money, row.step_flops, row.peak_flops)
    )
    sums = f"{row.seconds:.3f}", f"{row.tokens_per_second:.0f}", units, money
    return csv_line([row.step, *sums, row.after, row.currency, *flops])


def read_timing(path: Path, *, steps: int | None = None) -> list[TimingRow]:
    """The rows of `timing.csv` by rising steps; none if there is no such file. Of a step that was
    done again, only the last row counts; a last line that a crash cut off is left out. Those of a
    run of so many `steps` are as they were when it ended; none if no run came so far."""
    rows = _all_rows(path)
    kept: list[TimingRow] = []
    for row in rows if steps is None else _until_ended(rows, steps):
        while kept and kept[-1].step >= row.step:
            kept.pop()
        kept.append(row)
    return kept


def _until_ended(rows: list[TimingRow], steps: int) -> list[TimingRow]:
    """The rows that were there when a run of so many steps had ended. It may reach its last step,
    which may have several rows, twice, as after a kill, but not on the way of a longer run."""
    rows = [list(same)[-1] for _, same in itertools.groupby(rows, lambda row: row.step)]
    end = 0
    for number, row in enumerate(rows, start=1):
        if end and row.step > steps:
            break
        goes_on = number < len(rows) and rows[number].step > row.step
        if row.step == steps and not (end and goes_on):
            end = number
    return rows[:end]


def _all_rows(path: Path) -> list[TimingRow]:
    way_out = f"`rm {quote(str(path))}`: it holds nothing but times"
    rows = read_whole_rows(path, TimingRow, way_out=way_out)
    if any(one.seconds > next_.seconds for one, next_ in itertools.pairwise(rows)):
        raise UserError(f"{path} is damaged (its seconds go back); {way_out}.")
    return rows


def find_times(resume: Path, run: str) -> Path:
    """The path of the table of a run: with its checkpoints, or where it was left when they were
    removed. It may not exist."""
    with_checkpoints = resume / run / TIMING
    return with_checkpoints if with_checkpoints.exists() else resume / f"{run}.{TIMING}"


def publish_times(folder: Path, timing: Sequence[TimingRow], costs: Sequence[CostRow]) -> None:
    """Write the times of a run and what its epochs cost to the folder where plots read them. Where
    they are not known, those of another run are removed."""
    tables = {
        TIMING: _timing_table(timing) if timing else "",
        COSTS: table(CostRow, costs) if costs else "",
    }
    for name, content in tables.items():
        if content:
            write_text(folder / name, content)
        else:
            (folder / name).unlink(missing_ok=True)


def epoch_costs(timing: Sequence[TimingRow], ends: Sequence[int]) -> list[CostRow]:
    """The cost of every epoch that `timing` covers from its first to its last step.

    Repeated steps are included, and so is the validation after the epoch.

    Args:
        timing: the sums of a run. It may go on behind the last epoch.
        ends: the last step of each epoch. A run may end within its last one.
    """
    known = {step for row in timing for step in (row.after, row.step)}
    costs = []
    for epoch, (before, end) in enumerate(itertools.pairwise([0, *ends]), start=1):
        within = [row for row in timing if before < row.step <= end]
        if before not in known or not within or within[-1].step < end or within[-1].after > before:
            continue
        cost = spent([row for row in timing if row.step <= end], after=before)
        step_flops = within[-1].step_flops
        flops = None if step_flops is None else (end - before) * step_flops
        peaks = {row.peak_flops for row in within}
        possible = cost.seconds * (peaks.pop() or 0.0) if len(peaks) == 1 else 0.0
        costs.append(
            CostRow(
                epoch=epoch,
                **asdict(cost),
                hours=cost.seconds / 3600,
                flops=flops,
                utilisation=flops / possible if flops and possible else None,
            )
        )
    return costs


def total_utilisation(costs: Sequence[CostRow]) -> float | None:
    """The share of the devices' peak that the operations of these epochs were in all their time;
    None if that of one is not known."""
    known = [(row.flops, row.utilisation) for row in costs if row.flops and row.utilisation]
    if not known or len(known) < len(costs):
        return None
    return sum(flops for flops, _ in known) / sum(flops / share for flops, share in known)
