"""What a training costs: hours, bought units, money, energy. What is not known stays unknown; nothing is guessed.

Prices are those of the session that spends the hours, so a run over several machines adds up what was really paid.
Like times, costs differ from run to run and are no artefact: they are columns of `timing.csv`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tokenmill.training.params import CostParams

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
