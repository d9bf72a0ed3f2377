"""Training writes the cost of each of its epochs."""

import time
from pathlib import Path
from unittest import mock

import pytest

from tests.training.tiny import CONTEXT, run
from tokenmill.core.errors import UserError
from tokenmill.costs import COSTS, TIMING, CostRow, read_timing
from tokenmill.formats.records import read_rows
from tokenmill.training import loop
from tokenmill.training.size import flops_per_token


def test_a_stopped_session_is_paid_to_its_end(here: Path, tokens: Path):
    with pytest.raises(UserError, match=r"runtime\.max_minutes"):
        run(tokens, here / "model", log_every_steps=1000, runtime={"max_minutes": 1e-9})
    (checkpoint,) = here.glob(".resume/*/step-*")
    (row,) = read_timing(checkpoint.parent / TIMING)
    assert f"step-{row.step:09d}" == checkpoint.name
    assert row.seconds > 0


def test_a_killed_session_is_paid_to_its_last_checkpoint(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    """It ends before its first row of metrics/steps.csv."""
    steps = mock.Mock(side_effect=[*[mock.DEFAULT] * 4, RuntimeError], wraps=loop.train_step)
    monkeypatch.setattr(loop, "train_step", steps)
    with pytest.raises(RuntimeError):
        run(tokens, here / "model", log_every_steps=1000)
    (table,) = here.glob(f".resume/*/{TIMING}")
    assert [row.step for row in read_timing(table)] == [3]


def test_every_validation_is_paid(here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch):
    """That of an epoch counts with it, also the last one."""
    validate = mock.Mock(side_effect=lambda _: time.sleep(0.5) or mock.DEFAULT, wraps=loop.validate)
    monkeypatch.setattr(loop, "validate", validate)
    run(tokens, here / "model")
    assert [row.seconds > 0.5 for row in read_rows(here / COSTS, CostRow)] == [True, True]


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
