"""Line and bar charts: every position in percent of the plot, for the macro `chart` in
templates/parts.html.

The macro draws lines and bars as an SVG that stretches with the page, and labels and dots as HTML
at the same positions (as R. Harris's Pancake does). So one drawing fits a phone and a wide screen
without scaling its text, and it takes font, colours and dark mode from page.css.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tokenmill.words.units import si

# About this many ticks fit the axes on a phone
X_TICKS = 7
Y_TICKS = 4

NEAR = 12
"""Ticks of an x axis keep this distance from its last one, in percent of the plot, so that their
labels have room on a phone."""

WRITTEN_OUT = 10_000
"""Below this number the labels of an axis are written out, with a comma at the thousands."""

ROOM = 8
"""The most characters of a label in the first notation; of longer ones the shortest is taken."""

PRECISION = 0.01
"""A label is off from its number by at most this share of the number and of the axis. The next
round number is further away, so only a number that is not round is ever off: the last one of an x
axis, in three digits."""

EQUAL = 1e-9
"""Values that differ by less than this share of them are one value, rounded otherwise."""

LEAST = 1e-100
"""What is nearer to 0 is drawn as 0: of such numbers steps and logarithms have no digits."""

LABELS = 10
"""The most labels that are shown under bars."""

WIDE = 200
"""A logarithmic axis over more than this factor has ticks at powers of ten only."""

LADDER = (1, 2, 5)
"""The ticks of a logarithmic axis over a smaller range, times powers of ten."""

MARGIN = 0.04
"""The fraction of the range that lines keep from the left and the right edge."""


LINE_COLOURS = (1, 3, 4)
"""The colours in which lines are told apart; --series-2 is too pale for one."""

STROKES = 3
"""The number of strokes in answers.css, each with its own dots."""

MOST_LINES = len(LINE_COLOURS) * STROKES
"""The most lines that are told apart."""


def line_look(number: int) -> tuple[int, str]:
    """The colour and the CSS class of the stroke of one of many lines, given its number from 0.
    Neighbours differ in both."""
    colours = len(LINE_COLOURS)
    stroke = (number + number // colours) % STROKES
    return LINE_COLOURS[number % colours], f"stroke-{stroke}"


@dataclass(frozen=True)
class Series:
    """Values of one colour."""

    values: Sequence[float]
    colour: int
    """The number N of the colour --series-N in page.css."""
    name: str = ""
    """The name in the legend, which has none for a chart of a single series."""
    x: Sequence[float] = ()
    """The positions of a line's values on the x axis. Bars are at 0, 1, 2 ..."""
    titles: Sequence[str] = ()
    """The text that a pointer on each value shows. A line with titles has a dot at each value."""
    classes: str = ""
    """CSS classes of a line, its dots and its name in the legend."""

    @property
    def has_dots(self) -> bool:
        """Whether a line has a dot at each value; a line of one value is nothing but its dot."""
        return bool(self.titles) or len(self.values) == 1


@dataclass(frozen=True)
class Tick:
    """A label on an axis."""

    at: float
    text: str


class Point(NamedTuple):
    """The place of a value of a line."""

    x: float
    y: float


class Bar(NamedTuple):
    """A rectangle on the x axis."""

    x: float
    width: float
    height: float


@dataclass(frozen=True)
class Chart:
    """A chart. All positions are in percent of the plot, from its left and its top edge."""

    x_label: str
    y_label: str
    alt: str
    """The chart in one sentence, for people who cannot see it."""
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    # Each series with the places of its values
    bars: Sequence[tuple[Series, list[Bar]]] = ()
    lines: Sequence[tuple[Series, list[Point]]] = ()

    @property
    def legend(self) -> list[Series]:
        """The series with a name."""
        return [one for one, _ in (*self.bars, *self.lines) if one.name]


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
    heights = _enclosing(0, max(value for one in series for value in one.values) or 1)
    y_axis = Axis(heights[0], heights[-1])

    def bar(number: int, n: int, value: float) -> Bar:
        left = (number + 0.08) * group + n * width
        return Bar(_round(left), _round(0.94 * width), y_axis.percent(value))

    places = [[bar(i, n, v) for i, v in enumerate(one.values)] for n, one in enumerate(series)]
    every = math.ceil(len(labels) / LABELS)
    return Chart(
        x_label,
        y_label,
        alt,
        [Tick(_round((i + 0.5) * group), labels[i]) for i in range(0, len(labels), every)],
        _y_ticks(y_axis, heights),
        bars=list(zip(series, places, strict=True)),
    )


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
        log: the axes that are logarithmic. Positions `x` on one must be positive; a height below
            LEAST is drawn at the bottom, where the smallest one above it is.
        x_label: the label of the x axis.
        y_label: the label of the y axis.
        alt: the chart in one sentence.
    """
    across = [x for one in series for x in one.x]
    x_axis = Axis.around(across, log="x" in log)
    measured = [value for one in series for value in one.values]
    bottom = -math.inf
    if "y" in log:
        bottom = min((value for value in measured if value >= LEAST), default=1.0)
    heights = _heights([max(value, bottom) for value in measured], log="y" in log)
    y_axis = Axis(heights[0], heights[-1], log="y" in log)
    places = [
        [
            Point(x_axis.percent(x), _round(100 - y_axis.percent(max(y, bottom))))
            for x, y in zip(one.x, one.values, strict=True)
        ]
        for one in series
    ]
    return Chart(
        x_label,
        y_label,
        alt,
        _x_ticks(x_axis, max(across)),
        _y_ticks(y_axis, heights),
        lines=list(zip(series, places, strict=True)),
    )


class Axis:
    """A range of values, linear or logarithmic, whose positions are in percent."""

    def __init__(self, low: float, high: float, *, log: bool = False):
        self._log = log
        self._low = self._scaled(low)
        self._high = self._scaled(high)

    @classmethod
    def around(cls, values: Sequence[float], *, log: bool) -> "Axis":
        """The axis of these values, with a margin on both sides."""
        axis = cls(min(values), max(values), log=log)
        margin = MARGIN * (axis._high - axis._low) or 0.5
        axis._low -= margin
        axis._high += margin
        return axis

    def percent(self, value: float) -> float:
        """The position of a value: 0 at the low end, 100 at the high end."""
        return _round(100 * (self._scaled(value) - self._low) / (self._high - self._low))

    def whole(self, count: int) -> list[float]:
        """About `count` round whole numbers within the range."""
        if self._log:
            powers = range(math.ceil(self._low), math.floor(self._high) + 1)
            return [10.0**power for power in powers[:: math.ceil(len(powers) / count) or 1]]
        step = math.ceil(_step(self._low, self._high, count))
        first, last = math.ceil(self._low / step), math.floor(self._high / step)
        return [number * step for number in range(first, last + 1)]

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self._log else value


def _x_ticks(axis: Axis, end: float) -> list[Tick]:
    """Ticks at round numbers, and one where the lines end."""
    latest = axis.percent(end) - NEAR
    values = [*(value for value in axis.whole(X_TICKS) if axis.percent(value) <= latest), end]
    labelled = zip(values, _labels(values), strict=True)
    return [Tick(axis.percent(value), label) for value, label in labelled]


def _y_ticks(axis: Axis, values: Sequence[float]) -> list[Tick]:
    labelled = zip(values, _labels(values), strict=True)
    return [Tick(_round(100 - axis.percent(value)), label) for value, label in labelled]


def _labels(values: Sequence[float]) -> list[str]:
    """The labels of one axis, which say its numbers in one notation: with the prefixes k, M, G;
    written out, at equal distances with equally many decimals; or with exponents."""
    span = max(values) - min(values)
    digits, decimals = (
        [_digits(value, PRECISION * min(span, abs(value)), kind) for value in values]
        for kind in "ef"
    )
    steps = [after - before for before, after in itertools.pairwise(values)]
    if steps and max(steps) - min(steps) < PRECISION * min(steps):
        decimals = [max(decimals)] * len(values)
    notations = [
        [f"{value:,.{n}f}" for value, n in zip(values, decimals, strict=True)],
        [f"{value:.{n}e}" if value else "0" for value, n in zip(values, digits, strict=True)],
    ]
    prefixed = [si(value, space="") for value in values]
    if max(map(abs, values)) >= WRITTEN_OUT and max(digits) <= 2 and "e" not in "".join(prefixed):
        notations.insert(0, prefixed)
    fitting = [labels for labels in notations if _longest(labels) <= ROOM]
    return fitting[0] if fitting else min(notations, key=_longest)


def _digits(value: float, off: float, kind: str) -> int:
    """The fewest digits after the point with which a number in a format of this kind is off by at
    most `off`."""
    return next(n for n in itertools.count() if abs(float(f"{value:.{n}{kind}}") - value) <= off)


def _longest(labels: Sequence[str]) -> int:
    return max(map(len, labels))


def _heights(values: Sequence[float], *, log: bool) -> list[float]:
    """Ticks of a y axis, which begins and ends at one."""
    low, high = min(values), max(values)
    if not log:
        return _enclosing(low, high)
    if high / low > WIDE:
        return _powers(low, high)
    first = math.floor(math.log10(low)) - 1  # a logarithm rounds
    last = math.ceil(math.log10(high)) + 2
    ladder = [factor * 10.0**power for power in range(first, last) for factor in LADDER]
    below = max(i for i, tick in enumerate(ladder) if tick <= low)
    above = max(below + 1, min(i for i, tick in enumerate(ladder) if tick >= high))
    linear = _enclosing(low, high)
    is_small = above - below < len(LADDER) + 1
    return linear if is_small and linear[0] > 0 else ladder[below : above + 1]


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten around a range, about Y_TICKS of them."""
    first = math.floor(math.log10(low))
    last = math.ceil(math.log10(high))
    every = math.ceil((last - first + 1) / Y_TICKS)
    return [10.0**power for power in range(first, last + every, every)]


def _enclosing(low: float, high: float) -> list[float]:
    """About Y_TICKS round numbers, of which the first is at most `low` and the last at least
    `high`. Around a single value, to rounding, they are those from 0 to twice this value."""
    if high - low <= max(EQUAL * max(abs(low), abs(high)), LEAST):
        low, high = sorted((0.0, 2 * high if abs(high) > LEAST else 1.0))
    step = _step(low, high, Y_TICKS)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _step(low: float, high: float, count: int) -> float:
    """The distance of about `count` ticks: 1, 2, 2.5 or 5 times a power of ten."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power > 0.999 * rough)


def _round(percent: float) -> float:
    return round(percent, 2)
