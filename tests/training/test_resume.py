"""From which checkpoint training continues, and what it says."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.training.tiny import model_config, train_params, workload
from tokenmill.model.gpt import build
from tokenmill.training.checkpoints.find import fill_from_previous, find_checkpoint
from tokenmill.training.checkpoints.store import CheckpointStore
from tokenmill.training.history import RunState, ValidationRow
from tokenmill.training.identity import RESUMABLE_KEYS
from tokenmill.training.params import TrainParams

PER_EPOCH = 10
EVERY_5 = {"validate_every_steps": 5}


def params(epochs: int, **schedule: Any) -> TrainParams:
    return train_params(epochs=epochs, schedule=schedule)


def store_of(
    folder: Path, train: TrainParams, *steps: int, validated: Sequence[int] = ()
) -> CheckpointStore:
    """Checkpoints of a run with these parameters at these steps."""
    store = CheckpointStore(folder)
    model = build(model_config(), seed=0)
    rows = [ValidationRow(step, step / PER_EPOCH, 3.0, 1.0) for step in validated]
    for step in steps:
        state = RunState(step=step, validations=rows)
        store.save(state, model, {}, train.model_dump(include=RESUMABLE_KEYS))
    return store


def find(store: CheckpointStore, train: TrainParams) -> tuple[int | None, str]:
    """The step from which training continues, None for its start, and the last thing it says."""
    said = [""]
    work = workload(train, steps_per_epoch=PER_EPOCH)
    checkpoint = find_checkpoint(store, work, say=said.append)
    return checkpoint.step if checkpoint else None, said[-1]


def test_empty_store_starts_from_scratch(tmp_path: Path):
    assert find(CheckpointStore(tmp_path / "none"), params(4)) == (None, "")


@pytest.mark.parametrize("kind", ["constant", "wsd", "cosine"])
def test_same_run_continues_from_its_newest_checkpoint(tmp_path: Path, kind: str):
    step, said = find(
        store_of(tmp_path / "run", params(4, type=kind), 20, 35), params(4, type=kind)
    )
    assert step == 35
    assert said == "continuing from step 35 of 40: 3.5 epochs done, 0.5 to go"


@pytest.mark.parametrize(
    "schedule", [{"type": "constant"}, {"type": "cosine", "horizon_epochs": 4}]
)
def test_more_epochs_continue_from_the_end_if_rates_agree(tmp_path: Path, schedule: dict[str, Any]):
    step, said = find(
        store_of(tmp_path / "run", params(4, **schedule), 35, 40), params(6, **schedule)
    )
    assert step == 40
    assert "4 epochs done, 2 to go" in said


def test_wsd_continues_from_before_the_decay(tmp_path: Path):
    four = params(4, type="wsd")
    six = params(6, type="wsd")
    step, said = find(store_of(tmp_path / "run", four, 30, 38, 40), six)
    assert step == 30
    assert "the decay of 4 epochs had not begun" in said


@pytest.mark.parametrize(
    ("before", "last", "now", "words"),
    [
        (4, 38, 6, "the decay of 4 epochs had not begun): 3 epochs done, 3 to go"),
        (
            5001,
            50_010,
            6100,
            "the decay of 5,001 epochs had not begun): 3,750.8 epochs done, 2,349.2 to go",
        ),
    ],
)
def test_epochs_of_a_decay_are_those_of_its_run(
    tmp_path: Path, before: int, last: int, now: int, words: str
):
    """Also of a run that was killed in its decay."""
    old, new = (params(epochs, type="wsd") for epochs in (before, now))
    begin = workload(old, steps_per_epoch=PER_EPOCH).pre_decay_step
    assert begin
    _, said = find(store_of(tmp_path / "run", old, begin, last), new)
    assert said.endswith(words)


@pytest.mark.parametrize(("kind", "others"), [("cosine", "power or wsd,"), ("wsd", "or power,")])
def test_more_epochs_may_continue_inexactly(tmp_path: Path, kind: str, others: str):
    """Of wsd, where the checkpoint before the decay is gone. No advice is what the run does."""
    four = params(4, type=kind)
    six = params(6, type=kind)
    step, said = find(store_of(tmp_path / "run", four, 38, 40), six)
    assert step == 40
    assert "the result differs from a run in one go" in said
    assert f"train.schedule.type constant{'' if kind == 'wsd' else ','} {others}" in said
    assert "train.schedule.horizon_epochs" in said


def test_cosine_names_the_horizon_of_the_steps_before(tmp_path: Path):
    before = params(2, type="cosine", horizon_epochs=8)
    now = params(4, type="cosine", horizon_epochs=6)
    step, said = find(store_of(tmp_path / "run", before, 20), now)
    assert step == 20
    assert "over 6 epochs; the steps before followed one over 8," in said


def test_cosine_is_exact_while_it_warms_up(tmp_path: Path):
    four = params(4, type="cosine")
    six = params(6, type="cosine")
    step, said = find(store_of(tmp_path / "run", four, 2), six)
    assert step == 2
    assert "differs" not in said


def test_checkpoints_beyond_the_end_are_ignored(tmp_path: Path):
    store = store_of(tmp_path / "run", params(4), 15, 20, 21, 40)
    assert find(store, params(2))[0] == 20
    assert find(store_of(tmp_path / "other", params(4), 30, 40), params(2))[0] is None
    four, two = (train_params(epochs=epochs, target_loss=3.0) for epochs in (4, 2))
    ended = store_of(tmp_path / "ended", four, 35, validated=[35])
    assert find(ended, two)[0] is None


@pytest.mark.parametrize(
    ("then", "validated", "now", "step"),
    [
        ({"target_loss": 2.0}, [13], {"target_loss": 2.0}, 20),
        ({"target_loss": 2.0}, [13], {"target_loss": 1.5}, 20),
        ({"target_loss": 1.5}, [13], {"target_loss": 2.0}, None),
        ({}, [], {"target_loss": 2.0}, None),
        ({"target_loss": 2.0}, [13], {}, 20),
        (EVERY_5, [5, 15], {"target_loss": 2.0} | EVERY_5, 20),
        (EVERY_5, [15], {"target_loss": 2.0} | EVERY_5, None),
        (EVERY_5, [5, 15], {"target_loss": 2.0}, None),
        ({"target_loss": 2.0}, [13], {"early_stopping": 2}, None),
        ({"target_loss": 2.0}, [13], {"target_loss": 1.5, "early_stopping": 2}, None),
        ({"early_stopping": 2}, [], {"early_stopping": 3}, 20),
        (EVERY_5, [5, 15], {"early_stopping": 2}, None),
        ({}, [5], {"early_stopping": 2}, None),
    ],
)
def test_a_run_that_may_have_missed_its_end_is_another(
    tmp_path: Path,
    then: dict[str, Any],
    validated: list[int],
    now: dict[str, Any],
    step: int | None,
):
    """With a target and without an interval, validations come where the target is expected."""
    before = train_params(epochs=4, **then)
    store = store_of(tmp_path / "run", before, 20, validated=validated)
    assert find(store, train_params(epochs=4, **now))[0] == step


@pytest.mark.parametrize("kind", ["wsd", "cosine"])
def test_fewer_epochs_are_another_run_unless_exact(tmp_path: Path, kind: str):
    six = params(6, type=kind)
    four = params(4, type=kind)
    assert find(store_of(tmp_path / "run", six, 38, 40), four)[0] is None


def test_another_horizon_is_another_run(tmp_path: Path):
    before, now = (params(4, type="cosine", horizon_epochs=n) for n in (4, 8))
    assert find(store_of(tmp_path / "run", before, 40), now)[0] is None


def test_horizon_written_out_continues(tmp_path: Path):
    before = params(4, type="wsd")
    now = params(4, type="wsd", horizon_epochs=4)
    assert find(store_of(tmp_path / "run", before, 30, 40), now)[0] == 40


def test_without_dvc_training_starts_from_scratch(here: Path, monkeypatch: pytest.MonkeyPatch):
    (here / "dvc.lock").touch()
    monkeypatch.setitem(sys.modules, "dvc.api", None)
    said: list[str] = []
    store = CheckpointStore(here / "run")
    fill_from_previous(store, Path("models/gpt"), said.append)
    assert said
    assert store.steps() == []
