"""The progress line of training."""

import io
import re
import time

import pytest

from tests.terminal import Terminal
from tokenmill.costs import Cost, CostParams
from tokenmill.progress import TrainingDisplay, amounts, clock


def test_the_progress_line_tells_cost_so_far_and_to_come(monkeypatch: pytest.MonkeyPatch):
    out = io.StringIO()
    display = TrainingDisplay(out)
    prices = CostParams(price_per_hour=0.5, currency="EUR", units_per_hour=1.8)
    display.start([("model", "x")], step=100, total=300, prices=prices)
    monkeypatch.setattr("tokenmill.progress.LINE_EVERY", 0.0)
    monkeypatch.setattr("tokenmill.progress.clock", lambda _: "14:05")
    display._began -= 7200.0  # a hundred steps took two hours
    display.interval(
        step=200,
        epoch=2.0,
        loss=1.5,
        tokens_per_second=1000.0,
        spent=Cost(10_800, units=5.4, money=1.5, currency="EUR"),
    )
    assert "3.0 h, 5.4 units, 1.50 EUR; 2.0 h, 3.6 units, 1.00 EUR" in out.getvalue()
    assert out.getvalue().strip().endswith("14:05")


def test_an_end_on_another_day_has_its_date(monkeypatch: pytest.MonkeyPatch):
    noon = time.mktime((2026, 3, 2, 12, 0, 0, 0, 0, -1))
    monkeypatch.setattr(time, "time", lambda: noon)
    assert clock(7200.0) == "14:00"
    assert clock(86_400.0) == "Tue 03 Mar 12:00"
    assert clock(5 * 365 * 86_400.0) == "2031"
    assert clock(1.4 * 365 * 86_400.0) == "2027", "in July"
    assert clock(1.9 * 365 * 86_400.0) == "2028", "in January"
    assert clock(1e100) == "3.1688e+92", "no clock of a system knows this year"


def test_unknown_amounts_are_not_shown():
    assert amounts(Cost(30)) == "30 s"
    assert amounts(Cost(30, money=0.0038, currency="EUR")) == "30 s, <0.01 EUR"


@pytest.mark.parametrize(
    ("columns", "facts"),
    [
        ("40", ["loss 1.500", "174,688 tokens/s"]),
        ("80", ["loss 1.500", "174,688 tokens/s", "2.0 h left", "5.4 units, 1.50 EUR spent"]),
        (
            "120",
            [
                "loss 1.500",
                "174,688 tokens/s",
                "2.0 h left",
                "1.50 EUR spent",
                "1.00 EUR to come",
                "until",
            ],
        ),
    ],
)
def test_the_bar_shows_as_many_facts_as_fit(
    monkeypatch: pytest.MonkeyPatch, columns: str, facts: list[str]
):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("tokenmill.progress.DRAW_EVERY", 0.0)
    # Late in the evening it is longer
    monkeypatch.setattr("tokenmill.progress.clock", lambda _: "14:05")
    screen = Terminal()
    display = TrainingDisplay(screen)
    prices = CostParams(price_per_hour=0.5, currency="EUR", units_per_hour=1.8)
    display.start([("model", "x")], step=100, total=300, prices=prices)
    display._began -= 7200.0
    display.interval(
        step=200,
        epoch=2.0,
        loss=1.5,
        tokens_per_second=174_688.0,
        spent=Cost(10_800, units=5.4, money=1.5, currency="EUR"),
    )
    display.close()
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\r", screen.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", drawn) if line.strip()]
    assert all(len(line) <= int(columns) for line in lines)
    assert any("━━━━━━━━" in line for line in lines) or columns == "40"
    last = next(line for line in reversed(lines) if "loss" in line)
    assert all(fact in last for fact in facts), last
    assert "step 200 of 300" in drawn


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()], ids=["a pipe", "TERM=dumb"])
def test_a_log_gets_lines_without_escape_codes(monkeypatch: pytest.MonkeyPatch, out: io.StringIO):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("tokenmill.progress.LINE_EVERY", 0.0)
    display = TrainingDisplay(out)
    display.start(
        [("model", "x")],
        step=0,
        total=3,
        prices=CostParams(price_per_hour=None, currency="EUR", units_per_hour=None),
    )
    display.say("a sentence")
    display.interval(step=1, epoch=1.0, loss=1.5, tokens_per_second=9.0, spent=Cost(1.0))
    display.close()
    assert out.getvalue().startswith("  model  x\na sentence\n  step 1/3  epoch 1.00  loss 1.500")
    assert "\x1b" not in out.getvalue()
