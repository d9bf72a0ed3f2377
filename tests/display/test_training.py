"""The progress line of training."""

import io

import pytest

from tokenmill.costs import Cost, CostParams
from tokenmill.display.training import TrainingDisplay, amounts, clock
from tokenmill.training.history import StepRow


def test_the_progress_line_tells_cost_so_far_and_to_come(monkeypatch: pytest.MonkeyPatch):
    out = io.StringIO()
    display = TrainingDisplay(out)
    prices = CostParams(price_per_hour=0.5, currency="EUR", units_per_hour=1.8)
    display.start([("model", "x")], step=100, total=300, prices=prices)
    monkeypatch.setattr("tokenmill.display.training.PLAIN_EVERY", 0.0)
    display._began -= 7200.0  # a hundred steps took two hours
    row = StepRow(step=200, epoch=2.0, loss=1.5, learning_rate=0.1, gradient_norm=1.0)
    display.interval(row, 1000.0, Cost(10_800, units=5.4, money=1.5))
    assert "3.0 h, 5.4 units, 1.50 EUR; 2.0 h, 3.6 units, 1.00 EUR" in out.getvalue()
    assert out.getvalue().strip().endswith(clock(7200.0))


def test_unknown_amounts_are_not_shown():
    assert amounts(Cost(30), "EUR") == "30 s"
