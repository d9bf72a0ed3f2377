"""Line and bar charts: every position in percent of the plot, for the macro `chart` in
templates/parts.html.

The macro draws lines and bars as an SVG that stretches with the page, and labels and dots as HTML
at the same positions (as R. Harris's Pancake does). So one drawing fits a phone and a wide screen
without scaling its text, and it takes font, colours and dark mode from page.css.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tokenmill.words.units import si

# About this many ticks fit the axes on a phone
X_TICKS = 7
Y_TICKS = 4

LABELS = 10
"""The most labels that are shown under bars."""

WIDE = 200
"""A logarithmic axis over more than this factor has ticks at powers of ten only."""

MARGIN = 0.04
"""The fraction of the range that lines keep from the edges, and bars from the top."""


@dataclass(frozen=True)
class Series:
    """Values of one colour. The page's legend names them."""

    values: Sequence[float]
    colour: int
    """The number N of the colour --series-N in page.css."""
    x: Sequence[float] = ()
    """The positions of a line's values on the x axis. Bars are at 0, 1, 2 ..."""
    titles: Sequence[str] = ()
    """The text that a pointer on each value shows. A line with titles has a dot at each value."""


@dataclass(frozen=True)
class Tick:
    """A label on an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Bar:
    """A rectangle on the x axis."""

    x: float
    width: float
    height: float
    colour: int
    title: str


@dataclass(frozen=True)
class Line:
    """A polyline."""

    points: list[tuple[float, float]]
    colour: int


@dataclass(frozen=True)
class Dot:
    """A value of a line."""

    x: float
    y: float
    colour: int
    title: str


@dataclass(frozen=True)
class Chart:
    """A chart. All positions are in percent of the plot, from its left and its top edge."""

    x_label: str
    y_label: str
    alt: str
    """The chart in one sentence, for people who cannot see it."""
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    bars: Sequence[Bar] = ()
    lines: Sequence[Line] = ()
    dots: Sequence[Dot] = ()


def bar_chart(
    labels: Sequence[str], series: Sequence[Series], *, x_label: str, y_label: str, alt: str
) -> Chart:
    """Groups of upright bars, with one bar of each series in a group.

    Args:
        labels: a label for each group; if there are more than LABELS, only every n-th is shown.
        series: series with as many values and titles as there are labels.
        x_label: the label of the x axis, along which the groups stand.
        y_label: the label of the y axis, along which heights are measured.
        alt: the chart in one sentence.
    """
    group = 100 / len(labels)
    width = 0.84 * group / len(series)
    top = max(1e-9, *(value for one in series for value in one.values)) * (1 + MARGIN)
    bars = [
        Bar(
            _round((i + 0.08) * group + n * width),
            _round(0.94 * width),
            _round(100 * value / top),
            one.colour,
            title,
        )
        for n, one in enumerate(series)
        for i, (value, title) in enumerate(zip(one.values, one.titles, strict=True))
    ]
    every = math.ceil(len(labels) / LABELS)
    x_ticks = [Tick(_round((i + 0.5) * group), labels[i]) for i in range(0, len(labels), every)]
    y_ticks = [
        Tick(_round(100 - 100 * value / top), si(value, space=""))
        for value in _linear_ticks(0, top, Y_TICKS)
    ]
    return Chart(x_label, y_label, alt, x_ticks, y_ticks, bars=bars)


def line_chart(
    series: Sequence[Series],
    *,
    log: Literal["", "y", "xy"] = "",
    x_label: str,
    y_label: str,
    alt: str,
) -> Chart:
    """Lines over a common x axis of whole numbers.

    Args:
        series: series with positions `x`.
        log: the axes that are logarithmic; values on them must be positive.
        x_label: the label of the x axis.
        y_label: the label of the y axis.
        alt: the chart in one sentence.
    """
    x_axis = Axis([x for one in series for x in one.x], log="x" in log)
    y_axis = Axis([value for one in series for value in one.values], log="y" in log)
    places = [
        [
            (x_axis.percent(x), _round(100 - y_axis.percent(y)))
            for x, y in zip(one.x, one.values, strict=True)
        ]
        for one in series
    ]
    return Chart(
        x_label,
        y_label,
        alt,
        [
            Tick(x_axis.percent(value), si(value, space=""))
            for value in x_axis.ticks(X_TICKS, whole=True)
        ],
        [
            Tick(_round(100 - y_axis.percent(value)), si(value, space=""))
            for value in y_axis.ticks(Y_TICKS)
        ],
        lines=[Line(points, one.colour) for one, points in zip(series, places, strict=True)],
        dots=[
            Dot(x, y, one.colour, title)
            for one, points in zip(series, places, strict=True)
            for (x, y), title in zip(points, one.titles, strict=False)
        ],
    )


class Axis:
    """A range of values, linear or logarithmic, whose positions are in percent."""

    def __init__(self, values: Sequence[float], *, log: bool):
        self._log = log
        low = min(map(self._scaled, values))
        high = max(map(self._scaled, values))
        margin = MARGIN * (high - low) or 0.5
        self._low = low - margin
        self._high = high + margin

    def percent(self, value: float) -> float:
        """The position of a value: 0 at the low end, 100 at the high end."""
        return _round(100 * (self._scaled(value) - self._low) / (self._high - self._low))

    def ticks(self, count: int, *, whole: bool = False) -> list[float]:
        """About `count` round values within the range; only integers if `whole`."""
        if self._log:
            return _log_ticks(10**self._low, 10**self._high, count)
        return _linear_ticks(self._low, self._high, count, whole=whole)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self._log else value


def _linear_ticks(low: float, high: float, count: int, *, whole: bool = False) -> list[float]:
    """Ticks at multiples of 1, 2, 2.5 or 5 times a power of ten."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power > 0.999 * rough)
    if whole:
        step = math.ceil(step)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _log_ticks(low: float, high: float, count: int) -> list[float]:
    """Ticks at powers of ten; over a small range also at 2 and 5 times these."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    if high / low <= WIDE:
        ticks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        ticks = [tick for tick in ticks if low <= tick <= high]
        return ticks if len(ticks) > 2 else _linear_ticks(low, high, count)
    within = [10.0**power for power in powers if low <= 10.0**power <= high]
    return within[:: math.ceil(len(within) / count)]


def _round(percent: float) -> float:
    return round(percent, 2)
