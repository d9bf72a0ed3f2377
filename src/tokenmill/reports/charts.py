"""Charts as SVG inside a page: drawn by matplotlib at two widths, coloured by the page's own style.

Text stays text, and colours become the page's CSS variables, so that a chart follows its font and its dark mode. Scaled
down to a phone a chart cannot be read, so each is drawn twice, and the page shows the one that fits (page.css). Every
measure is fixed in advance: the drawing does not depend on a machine's fonts or a user's matplotlibrc.
"""

import io
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from tokenmill.core.units import si

MUTED, RULE = "#000001", "#000002"


SERIES = ("#000011", "#000012", "#000013", "#000014")


VARIABLES = {MUTED: "var(--muted)", RULE: "var(--rule)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, start=1)
}
"""Colours that matplotlib draws with, and what takes their place in the page."""


TITLE = "title: "
"""Begins the id of what a pointer shows a text for."""


STYLE = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 12,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": RULE,
    "grid.linewidth": 1,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 6,
    "lines.linewidth": 2,
}


@dataclass(frozen=True)
class Size:
    """One of the two drawings; lengths in CSS pixels."""

    name: str
    width: int
    height: int
    ticks: int
    """Labels on the x axis at most."""


SIZES = (Size("wide", 720, 280, 14), Size("narrow", 340, 220, 8))


ROUND = (1, 2, 2.5, 5, 10)
"""What distances between ticks are multiples of."""


DOT = 8
"""The width of a dot: a line of no length with round ends, for the page keeps no markers."""


MANY = 200
"""A logarithmic axis that spans more than this factor has ticks at powers of ten only."""


LEFT, RIGHT, TOP, BOTTOM = 46, 10, 28, 46
"""Margins around the axes, in CSS pixels."""


@dataclass(frozen=True)
class Series:
    """Numbers that belong together; the page's legend names them."""

    values: Sequence[float]
    colour: int
    """Which of the page's series colours, from 1."""
    x: Sequence[float] = ()
    """Where the values stand; only for lines."""
    dots: Sequence[str] = ()
    """What a pointer on each value shows; only for lines, which then have a dot at each value."""


def bars(
    labels: Sequence[str], series: Sequence[Series], *, titles: Sequence[str], x_label: str, y_label: str, alt: str
) -> Markup:
    """Upright bars, those of several series side by side.

    Args:
        labels: under each group of bars; left out at even distances where there is no room.
        series: as many values as labels.
        titles: what a pointer on a group shows.
        x_label: what the groups are.
        y_label: what the heights are.
        alt: the chart in a sentence, for those who cannot see it.
    """

    def draw(axes: Axes, size: Size) -> None:
        width = 0.84 / len(series)
        for number, one in enumerate(series):
            places = [index + (number - (len(series) - 1) / 2) * width for index in range(len(labels))]
            drawn = axes.bar(places, one.values, width=width * 0.94, color=SERIES[one.colour - 1])
            for patch, title in zip(drawn, titles, strict=True):
                patch.set_gid(TITLE + title)
        step = -(-len(labels) // size.ticks)
        axes.set_xticks(range(0, len(labels), step), labels[::step])
        axes.set_xlim(-0.6, len(labels) - 0.4)
        axes.set_ylim(0, max(1e-9, *(value for one in series for value in one.values)) * 1.04)
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=ROUND))

    return _both(draw, x_label=x_label, y_label=y_label, alt=alt)


def lines(
    series: Sequence[Series], *, log: Literal["", "y", "xy"] = "", x_label: str, y_label: str, alt: str
) -> Markup:
    """Lines over a common x axis.

    Args:
        series: with `x`.
        log: the axes that are logarithmic; nothing on them may be zero.
        x_label: what x is.
        y_label: what the values are.
        alt: the chart in a sentence, for those who cannot see it.
    """

    def draw(axes: Axes, size: Size) -> None:
        for one in series:
            axes.plot(one.x, one.values, color=SERIES[one.colour - 1], solid_joinstyle="round")
            for x, value, title in zip(one.x, one.values, one.dots, strict=False):
                (dot,) = axes.plot([x, x], [value, value], color=SERIES[one.colour - 1], linewidth=DOT)
                dot.set_solid_capstyle("round")
                dot.set_gid(TITLE + title)
        axes.xaxis.set_major_locator(MaxNLocator(size.ticks, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=ROUND))
        if "x" in log:
            axes.set_xscale("log")
            _tick_powers(axes.xaxis, size.ticks)
        if "y" in log:
            axes.set_yscale("log")
            lowest, highest = axes.get_ylim()
            _tick_powers(axes.yaxis, size.ticks, between=() if highest / lowest > MANY else (2, 5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: si(value, space="")))

    return _both(draw, x_label=x_label, y_label=y_label, alt=alt)


def _tick_powers(axis: Axis, at_most: int, between: Sequence[float] = ()) -> None:
    """Ticks at powers of ten and at these multiples of them."""
    axis.set_major_locator(LogLocator(subs=(1, *between), numticks=at_most))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _both(draw: Callable[[Axes, Size], None], *, x_label: str, y_label: str, alt: str) -> Markup:
    """The chart at every size."""
    drawings = []
    for size in SIZES:
        with style.context(["default", STYLE]):
            figure = Figure(figsize=(size.width / 72, size.height / 72), dpi=72)
            inside = (size.width - LEFT - RIGHT) / size.width, (size.height - TOP - BOTTOM) / size.height
            axes = figure.add_axes((LEFT / size.width, BOTTOM / size.height, *inside))
            draw(axes, size)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: si(value, space="")))
            figure.text(1 - RIGHT / size.width, 8 / size.height, x_label, ha="right", color=MUTED)
            figure.text(4 / size.width, 1 - 14 / size.height, y_label, ha="left", color=MUTED)
            drawings.append(_markup(figure, size, alt))
    return Markup("\n").join(drawings)


def _markup(figure: Figure, size: Size, alt: str) -> Markup:
    """A figure as an SVG element of a page."""
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    file = io.BytesIO()
    figure.savefig(file, format="svg")
    drawn = ET.fromstring(file.getvalue())  # noqa: S314  (matplotlib wrote it just now)
    box = {"viewBox": f"0 0 {size.width} {size.height}", "width": str(size.width), "height": str(size.height)}
    root = ET.Element("svg", {"class": size.name, "role": "img", "aria-label": alt} | box)
    for child in drawn:
        _copy(child, root)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704  (ElementTree escapes)


def _copy(source: ET.Element, target: ET.Element) -> None:
    """Append what can be seen of `source` to `target`; of groups only the content."""
    tag = source.tag.rpartition("}")[2]
    if tag == "g":
        for child in source:
            _copy(child, target)
            name = source.get("id", "")
            if name.startswith(TITLE):
                ET.SubElement(target[-1], "title").text = name.removeprefix(TITLE)
    elif tag in ("path", "text"):
        kept = {name: " ".join(source.attrib[name].split()) for name in ("d", "x", "y") if name in source.attrib}
        made = ET.SubElement(target, tag, kept | {"style": _style(source.get("style", ""))})
        made.text = source.text if tag == "text" else None


def _style(css: str) -> str:
    """matplotlib's style of an element in the page's colours and font."""
    kept = []
    for name, value in (part.strip().split(": ") for part in css.split(";") if part.strip()):
        if not name.startswith("font"):
            kept.append(f"{name}:{VARIABLES.get(value, value)}")
    return ";".join(kept)
