"""What each epoch took, out of the run's own history of times; nothing where that is on another machine.

The table is that of the run's fingerprint, `.resume/<fingerprint>/timing.csv`: its copy metrics/timing.csv may tell of
another run when the model came out of DVC's cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tokenmill.training.cost import Spent
from tokenmill.training.epoch_costs import epoch_costs
from tokenmill.training.history import EpochRow
from tokenmill.training.timing import read_timing


@dataclass(frozen=True)
class EpochTime:
    """An epoch on the machines that trained it."""

    tokens_per_second: float
    """The median of its intervals, validation and checkpoints left out."""
    seconds_per_step: float
    """At that rate."""
    spent: Spent
    """All that it took: validation, checkpoints and repeated steps too."""


def run_times(timing: Path, history: Sequence[EpochRow]) -> dict[int, EpochTime]:
    """By epoch; without those that the table `timing` does not cover from beginning to end."""
    rows = read_timing(timing)
    if not rows or not history:
        return {}
    per_epoch = history[0].step
    costs = epoch_costs(rows, steps_per_epoch=per_epoch, flops_per_epoch=0, peak=None, currency="")
    times = {}
    for cost in costs[: len(history)]:
        end = cost.epoch * per_epoch
        rate = median(row.tokens_per_second for row in rows if end - per_epoch < row.step <= end)
        tokens_per_step = history[0].tokens / per_epoch
        times[cost.epoch] = EpochTime(rate, tokens_per_step / rate, cost.spent)
    return times
