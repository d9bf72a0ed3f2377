"""Numbers, text and charts as a page shows them."""

import re
import unicodedata
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.reports import charts
from tokenmill.reports.page import (
    SIGNS,
    UNSEEN,
    counted,
    decimal,
    excerpt,
    figures,
    percent,
    signed,
    token_markup,
    token_text,
)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (counted(1, "document"), "1 document"),
        (counted(1234567, "document"), "1 234 567 documents"),
        (decimal(1234.5), "1 234.50"),
        (percent(0.0), "0 %"),
        (percent(0.0001), "< 0.1 %"),
        (percent(0.5), "50.0 %"),
        (percent(0.9999), "> 99.9 %"),
        (percent(1.0), "100 %"),
        (signed(0.5), "+0.50"),
        (signed(-1234.5, 1), "−1 234.5"),
        (signed(-0.001), "0.00"),
        (figures(0.0043), "0.00430"),
        (figures(0.0000012345), "0.00000123"),
        (figures(12.345), "12.3"),
        (figures(123456), "123 000"),
    ],
)
def test_numbers_are_short_and_honest(shown: str, expected: str) -> None:
    assert shown.replace("\u202f", " ") == expected


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (b" the", "␣the"),
        (b"\n\t", "↵⇥"),
        ("é".encode(), "é"),
        (b"\xe2\x80", "\\xE2\\x80"),
        (b"\x00\x7f", "␀⟨U+007F⟩"),
        ("\u200b\u202e".encode(), "⟨U+200B⟩⟨U+202E⟩"),
    ],
)
def test_a_token_is_readable(token: bytes, shown: str) -> None:
    assert token_text(token) == shown


def test_a_tokens_signs_are_marked_and_its_text_escaped() -> None:
    assert token_markup(b" <i>\n") == "<i>␣</i>&lt;i&gt;<i>↵</i>"


@given(st.text(max_size=50))
def test_an_excerpt_hides_nothing(text: str) -> None:
    shown = excerpt(text, 30)
    assert all(char in SIGNS or unicodedata.category(char) not in UNSEEN for char in shown)
    shown.encode()  # no lone surrogate
    if len(text) <= 30 and not any(unicodedata.category(char) in UNSEEN for char in text):
        assert shown == text


HOSTILE = '<b>"&'
CHARTS = {
    "bars": lambda: charts.bars(
        ["a<b", "c", "d"],
        [charts.Series([1, 0, 3], colour=2), charts.Series([2, 5, 1], colour=1)],
        titles=[f"{HOSTILE} {i}" for i in range(3)],
        x_label=HOSTILE,
        y_label="y",
        alt=HOSTILE,
    ),
    "lines": lambda: charts.lines(
        [charts.Series([5, 3, 2], colour=1, x=[1, 2, 3]), charts.Series([4, 3, 1], colour=3, x=[1, 2, 3])],
        x_label="epoch",
        y_label=HOSTILE,
        alt=HOSTILE,
    ),
    "dots": lambda: charts.lines(
        [charts.Series([5, 3, 0.5], colour=1, x=[1, 2, 3], dots=[f"{HOSTILE} {i}" for i in range(3)])],
        log="y",
        x_label="epoch",
        y_label=HOSTILE,
        alt=HOSTILE,
    ),
    "one dot": lambda: charts.lines(
        [charts.Series([5], colour=1, x=[1], dots=["only"])], x_label="epoch", y_label=HOSTILE, alt=HOSTILE
    ),
    "logarithmic": lambda: charts.lines(
        [charts.Series([5000, 300, 2], colour=1, x=[1, 20, 3000])], log="xy", x_label=HOSTILE, y_label="y", alt=HOSTILE
    ),
}


def parsed(drawn: str) -> ET.Element:
    return ET.fromstring(f"<both>{drawn}</both>")  # noqa: S314


@pytest.mark.parametrize("kind", CHARTS)
def test_a_chart_is_drawn_twice_in_the_pages_own_colours_and_font(kind: str) -> None:
    drawn = CHARTS[kind]()
    both = list(parsed(drawn))
    assert [(one.tag, one.get("class"), one.get("aria-label")) for one in both] == [
        ("svg", "wide", HOSTILE),
        ("svg", "narrow", HOSTILE),
    ]
    for one in both:
        assert {element.tag for element in one.iter()} <= {"svg", "path", "text", "title"}
        assert not [element for element in one.iter() if element.get("id")]
        colours = set(re.findall(r"(?:fill|stroke):([^;]+)", ";".join(e.get("style", "") for e in one.iter())))
        assert colours <= {"none", *charts.VARIABLES.values()}
        assert "var(--series-1)" in colours
        assert HOSTILE in [element.text for element in one.iter("text")]
    assert "font" not in drawn
    assert "http" not in drawn


def test_bars_are_as_tall_as_their_values_and_have_titles() -> None:
    wide = parsed(CHARTS["bars"]())[0]
    heights = {}
    for path in wide.iter("path"):
        title = path.find("title")
        if title is not None:
            ys = [float(y) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", path.get("d", ""))]
            heights.setdefault(title.text, []).append(max(ys) - min(ys))
    unit = heights[f"{HOSTILE} 0"][0]
    assert heights[f"{HOSTILE} 0"] == pytest.approx([unit, 2 * unit], rel=1e-3)
    assert heights[f"{HOSTILE} 1"] == pytest.approx([0, 5 * unit], rel=1e-3)
    assert heights[f"{HOSTILE} 2"] == pytest.approx([3 * unit, unit], rel=1e-3)


def test_dots_stand_on_their_line_and_have_titles() -> None:
    for drawing in parsed(CHARTS["dots"]()):
        line, *dots = [path for path in drawing.iter("path") if "stroke:var(--series-1)" in path.get("style", "")]
        corners = re.findall(r"[ML] ([\d.]+ [\d.]+)", line.get("d", ""))
        places = [re.findall(r"[ML] ([\d.]+ [\d.]+)", dot.get("d", "")) for dot in dots]
        assert places == [[corner, corner] for corner in corners]
        assert [dot.findtext("title") for dot in dots] == [f"{HOSTILE} {i}" for i in range(3)]
        assert all("stroke-linecap:round" in dot.get("style", "") for dot in dots)


def test_a_logarithmic_axis_over_little_has_ticks_in_between() -> None:
    texts = [element.text for element in parsed(CHARTS["dots"]())[0].iter("text")]
    assert {"0.5", "1", "2", "5"} <= set(texts)
