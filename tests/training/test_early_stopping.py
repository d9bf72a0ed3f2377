"""Validation within an epoch, and training that ends when the validation loss no longer falls, or
has fallen far enough."""

import io
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.training.tiny import Outcome, digest, run, train_params
from tokenmill.costs import COSTS, CostRow
from tokenmill.formats.records import read_rows, rounded
from tokenmill.model.manifest import TrainedWith, read_manifest
from tokenmill.training.history import EpochRow, RunState, StepRow, ValidationRow, early_end
from tokenmill.training.loop import ends_early


def state(epochs: list[float], validations: dict[int, float] | None = None) -> RunState:
    """A run of ten steps an epoch with these validation losses."""
    ends = [
        EpochRow(n, 10 * n, 80 * n, 0.01, 1.0, loss, 2.0, 1.0)
        for n, loss in enumerate(epochs, start=1)
    ]
    within = [
        ValidationRow(step, step / 10, loss, 1.0) for step, loss in (validations or {}).items()
    ]
    return RunState(step=10 * len(epochs), epochs=ends, validations=within)


@pytest.mark.parametrize(
    ("epochs", "validations", "patience", "stop"),
    [
        ([3.0, 2.0, 2.5, 2.4], {}, 2, 40),
        ([3.0, 2.0, 2.5, 2.4], {}, 1, 30),
        ([3.0, 2.0, 2.5, 2.4], {}, 3, None),
        ([3.0, 2.0, 2.5, 2.4], {}, None, None),
        ([3.0, 2.0, 2.0], {}, 1, 30),
        ([3.0], {}, 1, None),
        ([3.0, 2.9], {13: 3.1, 16: 3.2}, 2, None),
        ([3.0, 3.3], {13: 3.1, 16: 3.2}, 3, 20),
        ([3.0, 3.3], {13: 3.1, 16: 3.2}, 2, 20),
        ([3.0, 3.3, 1.0], {13: 3.1, 16: 3.2}, 3, 20),
        ([], {3: 3.1}, 1, None),
    ],
)
def test_training_ends_with_the_epoch_that_brought_no_gain(
    epochs: list[float], validations: dict[int, float], patience: int | None, stop: int | None
):
    assert state(epochs, validations).stopped_at(patience) == stop


@pytest.mark.parametrize(
    ("validations", "told"), [({}, ""), ({24: 2.2}, ""), ({16: 1.5}, "at epoch 1.60 it was 1.500")]
)
def test_the_lowest_loss_is_told(validations: dict[int, float], told: str):
    """That of an epoch, whose weights are kept, and a lower one within an epoch."""
    said: list[str] = []
    training: Any = SimpleNamespace(
        work=SimpleNamespace(train=train_params(early_stopping=2), steps=50),
        state=state([3.0, 2.0, 2.5, 2.4], validations),
        display=SimpleNamespace(say=said.append),
    )
    assert ends_early(training) in {30, 40}
    assert "epoch 2 has the lowest, 2.000" in said[0]
    assert said[0].endswith(told or "2.000")


def weights(folder: Path) -> dict[str, str]:
    return {
        name: sha256
        for name, sha256 in digest(folder).items()
        if name.endswith("model.safetensors")
    }


def test_validation_within_an_epoch_changes_no_weight(here: Path, tokens: Path):
    plain = run(tokens, here / "plain")
    store = next(here.glob(".resume/*"))
    store.rename(here / "elsewhere")
    often = run(tokens, here / "often", validate_every_steps=2)
    assert next(here.glob(".resume/*")).name == store.name, "one run, for it continues under either"
    assert weights(here / "often") == weights(here / "plain")
    assert often.state.steps == plain.state.steps
    assert often.state.epochs == plain.state.epochs
    assert [row.step for row in often.state.validations] == [2, 4, 6, 8]
    assert [row.epoch for row in often.state.validations] == [0.4, 0.8, 1.2, 1.6]


HOPELESS: dict[str, Any] = {
    "learning_rate": 1e-9,
    "epochs": 5,
    "early_stopping": 2,
    "validate_every_steps": 4,
}


def test_a_killed_run_ends_early_at_the_same_epoch(here: Path, tokens: Path, said: io.StringIO):
    """With a learning rate of nothing the loss never falls by much, and rounding decides which one
    is the lowest."""
    once = run(tokens, here / "once", **HOPELESS)
    first = digest(here / "once")
    (here / ".resume").rename(here / "elsewhere")
    first_epoch: dict[str, Any] = HOPELESS | {"epochs": 1}
    run(tokens, here / "again", **first_epoch)
    said.truncate(0)
    again = run(tokens, here / "again", **HOPELESS)
    assert "continuing from step 5" in said.getvalue()
    assert again.state == once.state
    assert digest(here / "again") == first
    assert run(tokens, here / "again", **HOPELESS).state == once.state, (
        "a finished run has nothing left to do"
    )


def test_the_model_has_the_epochs_that_were_trained(here: Path, tokens: Path):
    outcome = run(tokens, here / "model", learning_rate=1e-30, epochs=5, early_stopping=1)
    assert len(outcome.state.epochs) == outcome.manifest.epochs == 2
    assert sorted(path.name for path in (here / "model").iterdir()) == [
        "epoch-1",
        "epoch-2",
        "manifest.json",
        "resume",
    ]
    assert (
        json.loads(next((here / "model/resume").glob("*/state.json")).read_text())["state"]["step"]
        == 10
    )


def test_a_model_that_ended_early_has_nothing_of_a_longer_run(here: Path, tokens: Path):
    changes: dict[str, Any] = {"learning_rate": 1e-30, "epochs": 5, "schedule": {"type": "wsd"}}
    run(tokens, here / "alone", early_stopping=1, **changes)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "long", **changes)
    run(tokens, here / "behind", early_stopping=1, **changes)
    assert digest(here / "behind") == digest(here / "alone")


def test_switched_on_later_it_does_not_take_what_is_too_late(here: Path, tokens: Path):
    run(tokens, here / "model", learning_rate=1e-30, epochs=3)
    outcome = run(tokens, here / "model", learning_rate=1e-30, epochs=3, early_stopping=1)
    assert len(outcome.state.epochs) == 2


def test_a_run_that_ended_early_has_no_more_epochs_than_asked(here: Path, tokens: Path):
    changes: dict[str, Any] = {"learning_rate": 1e-30, "early_stopping": 2}
    run(tokens, here / "longer", epochs=5, **changes)
    shorter = run(tokens, here / "shorter", epochs=2, **changes)
    assert len(shorter.state.epochs) == read_manifest(here / "shorter").epochs == 2


@pytest.mark.parametrize("changes", [{}, {"validate_every_steps": 2}])
def test_no_other_validations_than_its_own_end_a_run(
    here: Path, tokens: Path, changes: dict[str, Any]
):
    """The last checkpoint was written under the same parameters, but some before were not."""
    rule: dict[str, Any] = {"learning_rate": 1e-30, "epochs": 6, "validate_every_steps": None}
    rule |= changes
    once = run(tokens, here / "once", early_stopping=5, **rule)
    (here / ".resume").rename(here / "elsewhere")
    other: dict[str, Any] = {"validate_every_steps": None if changes else 2}
    first: dict[str, Any] = rule | {"epochs": 1} | other
    second: dict[str, Any] = rule | {"epochs": 2}
    run(tokens, here / "again", **first)
    run(tokens, here / "again", **second)
    again = run(tokens, here / "again", early_stopping=5, **rule)
    assert again.state == once.state


@pytest.mark.parametrize(
    ("target", "step"), [(3.1, 3), (3.0, 10), (2.5, 13), (2.1, 20), (1.0, None), (None, None)]
)
def test_the_first_validation_at_the_target_counts(target: float | None, step: int | None):
    assert state([3.0, 2.0], {3: 3.1, 13: 2.5, 16: 2.6}).reached_at(target) == step


@pytest.mark.parametrize(
    ("validations", "step"),
    [
        ({}, 50),
        ({50: 3.0}, 75),
        ({50: 3.0, 100: 2.5}, 200),
        ({50: 3.0, 100: 2.999999}, 200),
        ({50: 3.0, 100: 2.1}, 109),
        ({50: 3.0, 100: 2.01}, 105),
        ({50: 3.0, 100: 1.9}, 105),
        ({50: 3.0, 100: 3.1}, 150),
    ],
)
def test_the_next_validation_is_where_the_target_is_expected(
    validations: dict[int, float], step: int
):
    """At 109: the loss fell by 0.9 where the steps doubled, and 0.1 is missing: 100 · 2^(1/9)."""
    assert state([], validations).expected_at(2.0) == step


@pytest.mark.parametrize(("target", "step"), [(2.5, 20), (2.2, 30), (1.0, 30)])
def test_the_first_reason_to_end_counts(target: float, step: int):
    rules = train_params(target_loss=target, early_stopping=1)
    assert state([3.0, 2.3, 2.4, 2.1]).ends_at(rules) == step


def target_of(within: Outcome, step: int) -> float:
    """A loss that a run reaches first at a validation within an epoch."""
    return next(row.val_loss for row in within.state.validations if row.step == step)


OFTEN: dict[str, Any] = {"epochs": 3, "validate_every_steps": 2}


def test_a_run_ends_where_its_target_is_reached(here: Path, tokens: Path, said: io.StringIO):
    """The part of the epoch is the last epoch of the model; with another target it goes on."""
    whole = run(tokens, here / "whole", **OFTEN)
    (here / ".resume").rename(here / "elsewhere")
    target = target_of(whole, 8)
    ended = run(tokens, here / "ended", target_loss=target, **OFTEN)
    assert ended.state.step == 8
    assert [row.step for row in ended.state.epochs] == [5, 8]
    assert ended.state.epochs[-1].val_loss == target
    assert read_manifest(here / "ended").epochs == 2
    assert ended.state.validations == [row for row in whole.state.validations if row.step <= 8]
    assert ended.state.steps[-1].step == 8
    phrase = early_end(ended.manifest.train, ended.state.epochs, ended.state.steps[-1])
    assert phrase.startswith("at its target")
    assert phrase.endswith("after step 8 of 15")
    assert [row.epoch for row in read_rows(here / COSTS, CostRow)] == [1, 2]
    first = digest(here / "ended")
    assert run(tokens, here / "ended", target_loss=target, **OFTEN).state == ended.state
    assert digest(here / "ended") == first
    assert [row.epoch for row in read_rows(here / COSTS, CostRow)] == [1, 2]
    said.truncate(0)
    further = run(tokens, here / "further", **OFTEN)
    assert "continuing from step 8" in said.getvalue()
    assert further.state == whole.state
    assert weights(here / "further") == weights(here / "whole")


@pytest.mark.parametrize("target", [1e-9, 99.0])
def test_a_missed_target_is_said(here: Path, tokens: Path, said: io.StringIO, target: float):
    run(tokens, here / "model", target_loss=target, **OFTEN)
    assert ("without its target" in said.getvalue()) == (target < 1)


def test_early_stopping_before_a_target_asks_for_no_epochs(
    here: Path, tokens: Path, said: io.StringIO
):
    run(tokens, here / "model", **HOPELESS, target_loss=1e-9)
    assert "train.early_stopping" in said.getvalue()
    assert "a larger train.epochs" not in said.getvalue()


@pytest.mark.parametrize(
    ("changes", "step", "end"),
    [
        ({}, 60, ""),
        ({"target_loss": 1.5}, 37, "at its target"),
        ({"target_loss": 1.5}, 60, "at its target"),
        ({"target_loss": 1.4, "early_stopping": 2}, 37, "early"),
        ({"target_loss": 1.4, "early_stopping": 2}, 60, ""),
        ({"target_loss": 1.5}, 27, "at its target"),
    ],
)
@pytest.mark.parametrize("scale", [1, 1_000_003])
def test_the_end_of_a_run_is_told_in_words(
    changes: dict[str, Any], step: int, end: str, scale: int
):
    """Two epochs of thirty steps, or of as many millions."""
    train = TrainedWith.model_validate(train_params(**changes).model_dump())
    last = StepRow(step * scale, rounded(step / 30), 2.0, 0.01, 1.0)
    ends = sorted({min(30, step) * scale, step * scale})
    epochs = [EpochRow(n, at, at, 0.01, 2.0, 1.5, 4.5, 1.0) for n, at in enumerate(ends, start=1)]
    found = early_end(train, epochs, last)
    assert found.startswith(end)
    assert found.endswith(f"after step {step * scale:,} of {60 * scale:,}" if end else "")
    assert bool(found) == bool(end)


def test_a_run_that_goes_on_ends_at_the_same_step(here: Path, tokens: Path):
    whole = run(tokens, here / "whole", **OFTEN)
    (here / ".resume").rename(here / "elsewhere")
    target = target_of(whole, 12)
    once = run(tokens, here / "once", target_loss=target, **OFTEN)
    first = digest(here / "once")
    (here / ".resume").rename(here / "elsewhere too")
    one_epoch: dict[str, Any] = OFTEN | {"epochs": 1}
    run(tokens, here / "again", **one_epoch)
    again = run(tokens, here / "again", target_loss=target, **OFTEN)
    assert again.state == once.state
    assert digest(here / "again") == first


def test_a_target_set_later_takes_no_checkpoint_behind_it(here: Path, tokens: Path):
    whole = run(tokens, here / "model", **OFTEN)
    ended = run(tokens, here / "model", target_loss=target_of(whole, 8), **OFTEN)
    assert [row.step for row in ended.state.epochs] == [5, 8]
