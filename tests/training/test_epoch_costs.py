"""Training writes the cost of each of its epochs."""

from pathlib import Path

import pytest

from tests.training.tiny import CONTEXT, run
from tokenmill.core.errors import UserError
from tokenmill.costs import COSTS, TIMING, CostRow, read_timing
from tokenmill.formats.records import read_rows
from tokenmill.training.size import flops_per_token


def test_a_stopped_session_is_paid_to_its_end(here: Path, tokens: Path):
    with pytest.raises(UserError, match=r"runtime\.max_minutes"):
        run(tokens, here / "model", log_every_steps=1000, runtime={"max_minutes": 1e-9})
    (checkpoint,) = here.glob(".resume/*/step-*")
    (row,) = read_timing(checkpoint.parent / TIMING)
    assert f"step-{row.step:09d}" == checkpoint.name
    assert row.seconds > 0


def test_training_writes_what_each_epoch_costs(here: Path, tokens: Path):
    outcome = run(
        tokens,
        here / "model",
        runtime={"cost": {"price_per_hour": 3600.0, "units_per_hour": 7200.0}},
    )
    costs = read_rows(here / COSTS, CostRow)
    assert [row.epoch for row in costs] == [1, 2]
    for row in costs:
        assert row.money == pytest.approx(row.seconds, abs=2e-3)
        assert row.units == pytest.approx(2 * row.seconds, abs=4e-3)
        assert row.flops == 19 * CONTEXT * flops_per_token(outcome.manifest.model)
        assert row.currency == "EUR"
