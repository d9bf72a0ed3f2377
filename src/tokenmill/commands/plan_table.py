"""The table of `tokenmill plan`: a step, hours, money and memory, on a GPU or on the machine that was measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill.core.errors import UserError
from tokenmill.core.units import duration
from tokenmill.costs import CostParams
from tokenmill.model.size import Memory, Precision, flops_per_token, memory
from tokenmill.planning.estimate import step
from tokenmill.planning.hardware import HARDWARE, Hardware
from tokenmill.training.schedule import Workload

HEAD = f"{'on':<18}{'step':>9}{'tokens/s':>12}{'training':>10}{'money':>12}  memory"


@dataclass(frozen=True)
class Measured:
    """This machine."""

    name: str
    seconds: float
    """A step."""
    told: str
    """How that is known."""


def table(
    work: Workload,
    gpus: Sequence[str] | None,
    *,
    here: Measured | None,
    devices: int,
    utilisation: float,
    price_per_hour: float | None,
    cost: CostParams,
) -> list[str]:
    """Lines for `here` and for the `gpus` of these names: all that are known for an empty list, for None not one.

    Raises:
        UserError: a name is not known.
    """
    lines = [HEAD]
    if here:
        lines.append(_row(here.name, work, here.seconds, price=cost.price_per_hour, currency=cost.currency))
    for entry in chosen(gpus) if gpus is not None else []:
        seconds = step_seconds(work, entry, devices=devices, utilisation=utilisation)
        price = None if price_per_hour is None else price_per_hour * devices
        name = entry.name if devices == 1 else f"{devices} x {entry.name}"
        lines.append(_row(name, work, seconds, price=price, currency=cost.currency) + _room(work, entry))
    if gpus is not None:
        lines.append(f"at {utilisation:.0%} of each GPU's half-precision peak, which is assumed (--utilisation);")
        lines.append("a small model or batch does not keep a GPU that busy")
    return [*lines, here.told] if here else lines


def chosen(names: Sequence[str]) -> list[Hardware]:
    """The GPUs of these names, or all for none."""
    known = {entry.name.lower(): entry for entry in HARDWARE}
    for name in names:
        if name.lower() not in known:
            raise UserError(
                f"--hardware {name} is not known; known are {', '.join(e.name for e in HARDWARE)}, and here."
            )
    return [known[name.lower()] for name in names] or HARDWARE


def step_seconds(work: Workload, entry: Hardware, *, devices: int, utilisation: float) -> float:
    """What a step takes on such GPUs at this share of their peak."""
    return step(
        work.config,
        tokens=work.tokens_per_step,
        optimizer=work.train.optimizer,
        rate=entry.teraflops * 1e12 * utilisation,
        devices=devices,
        parallel="ddp",
        precision="half",
        bandwidth=entry.link_gb_per_second * 1e9,
    ).seconds


def memory_of(work: Workload, precision: Precision, sequences: int | None = None) -> Memory:
    """Memory of one device that takes `sequences` at a time; if not given, all of a batch."""
    sequences = sequences or work.train.batch_size
    return memory(work.config, sequences=sequences, precision=precision, optimizer=work.train.optimizer)


def reached(work: Workload, names: Sequence[str], *, seconds: float, devices: int) -> str:
    """What share of each peak a step of so many seconds would be."""
    rate = work.tokens_per_step * flops_per_token(work.config) / seconds / devices
    shares = ", ".join(f"{rate / entry.teraflops / 1e12:.0%} of {entry.name}" for entry in chosen(names))
    total = duration(seconds * work.steps)
    return f"a step in {seconds:g} s: {rate / 1e12:.3g}e12 operations a second, {shares}; {total} in all"


def _row(name: str, work: Workload, seconds: float, *, price: float | None, currency: str) -> str:
    total = seconds * work.steps
    money = "" if price is None else f"{total / 3600 * price:,.2f} {currency}"
    each = f"{seconds:.3g} s" if seconds >= 0.1 else f"{seconds * 1000:.3g} ms"
    return f"{name:<18}{each:>9}{work.tokens_per_step / seconds:>12,.0f}{duration(total):>10}{money:>12}"


def _room(work: Workload, entry: Hardware) -> str:
    """Whether a batch fits, or the largest part of it that does."""
    sequences = work.train.batch_size
    while sequences and memory_of(work, "half", sequences).total > 0.9 * entry.memory_gb * 1e9:
        sequences //= 2
    if sequences == work.train.batch_size:
        return "  fits"
    return f"  fits {sequences} sequences at a time" if sequences else "  too small"
