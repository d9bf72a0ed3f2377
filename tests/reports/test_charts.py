"""Positions of charts, and the page's drawing of them."""

import html
import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.reports.html_page import Page
from tokenmill.reports.charts import Axis, Chart, Series, bar_chart, line_chart
from tokenmill.reports.page import environment

HOSTILE = '<b>"&'
BARS = bar_chart(
    ["a<b", "c", "d"],
    [
        Series([1, 0, 3], colour=2, titles=["first", "second", "third"]),
        Series([2, 5, 1], colour=1, titles=[f"{HOSTILE} {i}" for i in range(3)]),
    ],
    x_label=HOSTILE,
    y_label="y",
    alt=HOSTILE,
)
LINES = line_chart(
    [
        Series([5, 3, 0.5], colour=1, x=[1, 2, 3], titles=[f"{HOSTILE} {i}" for i in range(3)]),
        Series([4, 3, 1], colour=3, x=[1, 2, 3]),
    ],
    log="y",
    x_label="epoch",
    y_label=HOSTILE,
    alt=HOSTILE,
)


def drawn(chart: Chart) -> str:
    template = '{% import "parts.html" as parts %}{% call parts.chart(chart) %}caption{% endcall %}'
    return environment().from_string(template).render(chart=chart)


@pytest.mark.parametrize("chart", [BARS, LINES], ids=["bars", "lines"])
def test_drawing_is_whole_and_uses_the_pages_colours(chart: Chart) -> None:
    source = drawn(chart)
    Page(source)
    assert HOSTILE not in source
    assert set(re.findall(r"(?:fill|stroke):([^;\"]+)", source)) <= {
        f"var(--series-{n})" for n in range(1, 5)
    } | {"var(--rule)"}
    assert "http" not in source
    assert {HOSTILE, "caption"} <= set(Page(source).text) | {
        text.strip() for text in Page(source).text
    }


def test_drawing_has_every_bar_line_and_dot() -> None:
    bars = ET.fromstring(re.findall("<svg.*?</svg>", drawn(BARS), re.DOTALL)[0])  # noqa: S314 (our own drawing)
    assert [rect.findtext("title") for rect in bars.iter("rect")] == [
        title for series, _ in BARS.bars for title in series.titles
    ]
    lines = drawn(LINES)
    assert lines.count("<polyline") == 2
    assert lines[lines.index("plot") :].count('class="dot series-1"') == 3


def test_legend_shows_what_the_chart_draws() -> None:
    named = [Series([1, 2], 1, "a", [1, 2]), Series([1, 2], 3, HOSTILE, [1, 2], ["", ""], "run")]
    chart = line_chart(named, x_label="", y_label="", alt="")
    assert chart.legend == named
    legend = drawn(chart).partition('class="plot"')[0]
    assert (legend.count("<path"), legend.count("dot series-3"), HOSTILE in legend) == (2, 1, False)
    assert '<li class="run">' in legend
    assert BARS.legend == []


@example([0.5, 0.5], "y")
@example([999_999_999_999.998], "y")
@given(
    st.lists(st.floats(1e-6, 1e12), min_size=1, max_size=9),
    st.sampled_from(["", "y"]),
)
def test_axes_are_labelled_to_the_end_of_the_line(values: list[float], log: str) -> None:
    end = 37 * len(values)
    chart = line_chart(
        [Series(values, 1, "", range(37, end + 1, 37))],
        log="y" if log else "",
        x_label="",
        y_label="",
        alt="",
    )
    ((_, points),) = chart.lines
    assert (chart.x_ticks[-1].at, chart.x_ticks[-1].text) == (points[-1].x, str(end))
    assert max(tick.at for tick in chart.y_ticks) >= max(y for _, y in points) - 0.01
    assert min(tick.at for tick in chart.y_ticks) <= min(y for _, y in points) + 0.01


def said(label: str) -> float:
    """The number that a label says."""
    digits = label.rstrip("kMGT")
    return float(digits.replace(",", "")) * 1000 ** " kMGT".index(label[len(digits) :] or " ")


@example(5.5412, 2e-5, "")
@example(100_000, 1e-5, "")
@example(1e-6, 1e12, "y")
@given(
    st.floats(1e-9, 1e12),
    st.floats(0, 1e-3) | st.floats(1e-3, 1e15),
    st.sampled_from(["", "y"]),
)
def test_labels_say_where_they_stand(low: float, more: float, log: str) -> None:
    series = Series([low, low * (1 + more)], 1, "", [37, 2_345_678])
    chart = line_chart([series], log="y" if log else "", x_label="", y_label="", alt="")
    numbers = [said(tick.text) for tick in chart.y_ticks]
    assert numbers == sorted(set(numbers))
    axis = Axis(numbers[0], numbers[-1], log=bool(log))
    assert [100 - axis.percent(one) for one in numbers] == pytest.approx(
        [tick.at for tick in chart.y_ticks], abs=0.02
    )
    ((_, points),) = chart.lines
    assert [100 - axis.percent(one) for one in series.values] == pytest.approx(
        [point.y for point in points], abs=0.02
    )
    across = Axis.around([37, 2_345_678], log=False)
    assert [across.percent(said(tick.text)) for tick in chart.x_ticks] == pytest.approx(
        [tick.at for tick in chart.x_ticks], abs=1
    )


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([5.54, 5.541], ["5.54000", "5.54025", "5.54050", "5.54075", "5.54100"]),
        ([0.0, 2e-4], ["0.00000", "0.00005", "0.00010", "0.00015", "0.00020"]),
        ([0.0, 1e-7], ["0", "2.5e-08", "5e-08", "7.5e-08", "1e-07"]),
        ([0.0, 1e5], ["0", "25k", "50k", "75k", "100k"]),
    ],
)
def test_labels_of_an_axis_have_one_notation(values: list[float], labels: list[str]) -> None:
    chart = line_chart([Series(values, 1, "", [1, 2])], x_label="", y_label="", alt="")
    assert [tick.text for tick in chart.y_ticks] == labels


def test_a_line_of_one_value_is_a_dot() -> None:
    chart = line_chart([Series([5], 1, "training", [1])], x_label="", y_label="", alt="")
    ((line, points),) = chart.lines
    assert (line.has_dots, points) == (True, [(50, 50)])
    assert '<span class="dot series-1" style="left:50.0%;top:50.0%"' in drawn(chart)


@pytest.mark.parametrize("log", ["", "y"])
@pytest.mark.parametrize("values", [[5e-324], [0.0, 5e-324], [5e-324, 1e-310, 2.0]])
def test_a_loss_too_small_for_arithmetic_is_drawn_as_none(values: list[float], log: str) -> None:
    series = Series(values, 1, "", range(1, len(values) + 1))
    ((_, points),) = line_chart(
        [series], log="y" if log else "", x_label="", y_label="", alt=""
    ).lines
    assert {point.y for point in points if values[points.index(point)] < 1} == {100.0}
    ((_, bars),) = bar_chart([""] * len(values), [series], x_label="", y_label="", alt="").bars
    assert bars[0].height == 0


def test_a_loss_of_nothing_stands_at_the_bottom() -> None:
    series = Series([2.0, 0.5, 0.0], 1, "", [1, 2, 3])
    ((_, points),) = line_chart([series], log="xy", x_label="", y_label="", alt="").lines
    assert points[2].y == points[1].y > points[0].y


@pytest.mark.parametrize(
    ("end", "label"), [(950, "950"), (1316, "1,316"), (9999, "9,999"), (1_347_072, "1.35M")]
)
def test_thousands_of_an_axis_are_written_as_elsewhere(end: int, label: str) -> None:
    chart = line_chart([Series([1, 2], 1, "", [1, end])], x_label="", y_label="", alt="")
    assert chart.x_ticks[-1].text == label


def test_bars_are_as_tall_as_their_values() -> None:
    heights = [bar.height for _, bars in BARS.bars for bar in bars]
    assert heights == pytest.approx([value * heights[0] for value in (1, 0, 3, 2, 5, 1)], abs=0.05)
    assert max(heights) < 100


def test_bars_of_a_group_stand_side_by_side() -> None:
    groups = list(zip(*(bars for _, bars in BARS.bars), strict=True))
    assert all(a.x + a.width <= b.x for a, b in itertools.pairwise(itertools.chain(*groups)))
    for (left, right), tick in zip(groups, BARS.x_ticks, strict=True):
        assert left.x < tick.at < right.x + right.width


def test_many_labels_are_thinned_evenly() -> None:
    labels = [str(i) for i in range(25)]
    chart = bar_chart(
        labels, [Series([1] * 25, colour=1, titles=labels)], x_label="", y_label="", alt=""
    )
    assert [tick.text for tick in chart.x_ticks] == [str(i) for i in range(0, 25, 3)]


def test_dots_stand_on_their_line() -> None:
    ((series, points), _) = LINES.lines
    dots = re.findall(r'class="dot .*?left:(.*?)%;top:(.*?)%" title="(.*?)"', drawn(LINES))
    assert [(float(x), float(y)) for x, y, _ in dots] == points
    assert [html.unescape(title) for *_, title in dots] == series.titles


def test_small_logarithmic_axis_has_ticks_between_powers() -> None:
    assert [tick.text for tick in LINES.y_ticks] == ["0.5", "1", "2", "5"]


def test_wide_logarithmic_axis_has_powers_of_ten() -> None:
    assert Axis(1, 30_000, log=True).whole(7) == [1, 10, 100, 1000, 10_000]


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=9), st.integers(2, 9))
def test_whole_ticks_are_within_the_axis_and_few(values: list[int], count: int) -> None:
    axis = Axis.around(values, log=False)
    assert all(0 <= axis.percent(value) <= 100 for value in values)
    ticks = axis.whole(count)
    assert len(ticks) <= count + 1
    assert all(-0.01 <= axis.percent(tick) <= 100.01 and tick == int(tick) for tick in ticks)


def test_axis_of_one_value_has_room_around_it() -> None:
    chart = line_chart(
        [Series([5], colour=1, x=[1], titles=["only"])], x_label="epoch", y_label="", alt=""
    )
    assert chart.lines[0][1] == [(50, 50)]
    assert [tick.text for tick in chart.x_ticks] == ["1"]
