"""What each epoch of a training cost: `metrics/costs.csv`, which git ignores and no stage declares."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tokenmill.files import write_text
from tokenmill.training.cost import Spent
from tokenmill.training.timing import TimeRow

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
