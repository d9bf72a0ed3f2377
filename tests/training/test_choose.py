"""From which checkpoint a training goes on, and what it says."""

from pathlib import Path
from typing import Any

import pytest

from tests.training.tiny import model_config, train_params
from tokenmill.model.gpt import build
from tokenmill.training.checkpoint import RESUMABLE_KEYS, CheckpointStore
from tokenmill.training.history import RunState
from tokenmill.training.params import TrainParams
from tokenmill.training.resume import ResumePoint, find_resume_point

PER_EPOCH = 10


def params(epochs: int, **schedule: Any) -> TrainParams:
    return train_params(epochs=epochs, schedule=schedule)


def store_of(folder: Path, train: TrainParams, *steps: int) -> CheckpointStore:
    """Checkpoints of a run with these parameters at these steps."""
    store, model = CheckpointStore(folder), build(model_config(), seed=0)
    for step in steps:
        store.save(RunState(step=step), model, {}, train.model_dump(include=RESUMABLE_KEYS))
    return store


def begin(store: CheckpointStore, train: TrainParams) -> ResumePoint:
    return find_resume_point(store, train, steps_per_epoch=PER_EPOCH, say=print)


def step_of(beginning: ResumePoint) -> int | None:
    return beginning.checkpoint.step if beginning.checkpoint else None


def test_an_empty_store_begins_from_scratch(tmp_path: Path):
    beginning = begin(CheckpointStore(tmp_path / "none"), params(4))
    assert (step_of(beginning), beginning.sentence) == (None, "starting from scratch")


@pytest.mark.parametrize("kind", ["constant", "wsd", "cosine"])
def test_the_same_run_goes_on_from_its_newest(tmp_path: Path, kind: str):
    beginning = begin(store_of(tmp_path / "run", params(4, type=kind), 20, 35), params(4, type=kind))
    assert step_of(beginning) == 35
    assert beginning.sentence == "going on from step 35 of 40: 3.5 epochs done, 0.5 to go"


@pytest.mark.parametrize("schedule", [{"type": "constant"}, {"type": "cosine", "horizon_epochs": 4}])
def test_more_epochs_of_a_schedule_that_does_not_mind_go_on_from_the_end(tmp_path: Path, schedule: dict[str, Any]):
    beginning = begin(store_of(tmp_path / "run", params(4, **schedule), 35, 40), params(6, **schedule))
    assert step_of(beginning) == 40
    assert "4 epochs done, 2 to go" in beginning.sentence


def test_wsd_goes_on_from_the_trunk_and_says_why(tmp_path: Path):
    four, six = params(4, type="wsd"), params(6, type="wsd")
    beginning = begin(store_of(tmp_path / "run", four, 30, 38, 40), six)
    assert step_of(beginning) == 30
    assert "the decay of 4 epochs had not begun" in beginning.sentence


def test_cosine_goes_on_from_the_newest_and_says_that_it_is_not_the_same(tmp_path: Path):
    four, six = params(4, type="cosine"), params(6, type="cosine")
    beginning = begin(store_of(tmp_path / "run", four, 30, 40), six)
    assert step_of(beginning) == 40
    assert "over 6 epochs; the steps before followed one over 4" in beginning.sentence
    assert "differs from a run in one go" in beginning.sentence
    assert "train.schedule.type constant or wsd, or fix train.schedule.horizon_epochs" in beginning.sentence


def test_cosine_is_exact_while_it_warms_up(tmp_path: Path):
    four, six = params(4, type="cosine"), params(6, type="cosine")
    beginning = begin(store_of(tmp_path / "run", four, 2), six)
    assert step_of(beginning) == 2
    assert "differs" not in beginning.sentence


def test_checkpoints_beyond_the_end_are_not_looked_at(tmp_path: Path):
    store = store_of(tmp_path / "run", params(4), 15, 20, 21, 40)
    assert step_of(begin(store, params(2))) == 20
    assert step_of(begin(store_of(tmp_path / "other", params(4), 30, 40), params(2))) is None


@pytest.mark.parametrize("kind", ["wsd", "cosine"])
def test_fewer_epochs_are_another_run_unless_exact(tmp_path: Path, kind: str):
    six, four = params(6, type=kind), params(4, type=kind)
    assert step_of(begin(store_of(tmp_path / "run", six, 38, 40), four)) is None


def test_another_horizon_is_another_run(tmp_path: Path):
    before, now = (params(4, type="cosine", horizon_epochs=n) for n in (4, 8))
    assert step_of(begin(store_of(tmp_path / "run", before, 40), now)) is None


def test_a_horizon_written_out_goes_on(tmp_path: Path):
    before, now = params(4, type="wsd"), params(4, type="wsd", horizon_epochs=4)
    assert step_of(begin(store_of(tmp_path / "run", before, 30, 40), now)) == 40
