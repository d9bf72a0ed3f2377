"""A run that diverges and may go back by itself: to a place that the step alone decides, and on at a lower rate."""

import io
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.training.tiny import assert_same_to_rounding, digest, model_config, run, train_params
from tests.training.zygote import Zygote
from tokenmill.core.errors import UserError
from tokenmill.model.build import build
from tokenmill.training import trainer as trainer_module
from tokenmill.training.checkpoint import HORIZON, Store
from tokenmill.training.history import Return, RunState
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.params import DivergenceParams, TrainParams
from tokenmill.training.saving import Saver
from tokenmill.training.schedule import lr_at
from tokenmill.training.trainer import marks, where_to_return

GROWING: dict[str, Any] = {
    "model": {"architecture": "gpt2"},
    "learning_rate": 1e7,
    "schedule": {"warmup_steps": 1_000_000},
    "epochs": 8,
    "log_every_steps": 1,
}
"""A rate of 10, 20, 30, …: the weights grow until the loss overflows, after a dozen of 40 steps, and later again."""
AT_ONCE: dict[str, Any] = {
    "model": {"architecture": "gpt2"},
    "learning_rate": 2.0**124,
    "schedule": {"warmup_steps": 10},
    "epochs": 4,
}
"""Overflows in the second step."""


def back(returns: int, *, factor: float = 0.5, every: int = 4) -> dict[str, Any]:
    return {"divergence": {"returns": returns, "rate_factor": factor, "every_steps": every}}


def weights(output: Path) -> dict[str, str]:
    """The hashes of the weights at the end of every epoch."""
    return {path.name: digest(path)["model.safetensors"] for path in sorted(output.glob("epoch-*"))}


def rates(returns: list[Return], factor: float) -> Any:
    """The learning rate of each step that stayed, as a function for a run that never goes back."""

    def rate(step: int, **keywords: Any) -> float:
        made = max((number for number, each in enumerate(returns, start=1) if each.to <= step), default=0)
        return lr_at(step, **keywords) * factor**made

    return rate


def test_from_the_beginning_it_is_the_run_with_the_lower_rate(here: Path, tokens: Path, said: io.StringIO):
    lower = 2.0**-132
    returned = run(tokens, here / "returned", **AT_ONCE, **back(1, factor=lower, every=100))
    assert returned.state.returns == [Return(diverged=1, to=0)]
    assert "training diverged in step 2, epoch 1, batch 2 of 5 (sequences " in said.getvalue()
    assert "going back to the checkpoint of step 0 and on with 1.84e-40 of the learning rate (return 1 of 1)\n" in (
        said.getvalue()
    )
    arguments: dict[str, Any] = AT_ONCE | {"learning_rate": 2.0**124 * lower}
    plain = run(tokens, here / "plain", **arguments)
    assert returned.state.steps == plain.state.steps
    assert returned.state.epochs == plain.state.epochs
    assert weights(here / "returned") == weights(here / "plain")


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_from_the_middle_it_is_the_run_whose_rate_falls_there(
    here: Path, tokens: Path, optimizer: str, monkeypatch: pytest.MonkeyPatch
):
    """However late the losses are read; and nothing is left of the steps that were given up."""
    given_up: list[range] = []
    give_up = Saver.give_up

    def watch(self: Saver, steps: range) -> None:
        give_up(self, steps)
        assert not set(Store(next(here.glob(".resume/*/"))).steps()).intersection(steps)
        given_up.append(steps)

    monkeypatch.setattr(Saver, "give_up", watch)
    arguments: dict[str, Any] = GROWING | {"optimizer": optimizer} | back(9)
    returned = run(tokens, here / "returned", **arguments, runtime={"checkpoint": {"every_steps": 2}})
    returns = returned.state.returns
    assert len(returns) >= 2
    assert all(each.to == max(0, each.diverged // 4 - 1) * 4 for each in returns)
    assert returns[0].to > 0
    assert given_up == [range(each.to + 1, each.diverged + 1) for each in returns]
    shutil.rmtree(here / ".resume")
    late = run(tokens, here / "late", **dict(arguments, log_every_steps=7))
    assert (late.state.returns, weights(here / "late")) == (returns, weights(here / "returned"))
    monkeypatch.setattr(trainer_module, "lr_at", rates(returns, 0.5))
    shutil.rmtree(here / ".resume")
    straight = run(tokens, here / "straight", **(arguments | back(0)))
    assert straight.state.steps == returned.state.steps
    assert weights(here / "straight") == weights(here / "returned")


def test_gradients_that_float16_did_not_hold_lead_back_too(
    here: Path, tokens: Path, said: io.StringIO, monkeypatch: pytest.MonkeyPatch
):
    """Each overflow halves the scale of 65,536: hope is lost with the 17th."""
    left = 17

    def backward(self: Optimizer, loss: Tensor) -> None:
        nonlocal left
        left -= 1
        self._scaler.scale(loss * (1e30 if left >= 0 else 1)).backward()

    monkeypatch.setattr(Optimizer, "backward", backward)
    arguments: dict[str, Any] = {"epochs": 5, "precision": "float16", "log_every_steps": 1}
    finished = run(tokens, here / "model", **arguments, **back(1))
    assert finished.state.returns == [Return(diverged=16, to=12)]
    assert "diverged in step 17, epoch 4, batch 2 of 5 (sequences " in said.getvalue()
    assert [row.learning_rate for row in finished.state.steps[11:13]] == [0.01, 0.005]
    assert left == -13, "steps 13 to 25 were made again"


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_in_the_same_bytes(tmp_path: Path, tokens: Path, zygote: Zygote):
    arguments = GROWING | back(9) | {"runtime": {"checkpoint": {"every_steps": 3}}}
    assert zygote.start(tmp_path / "quiet", tokens, **arguments).wait() == 0
    draws, kills = random.Random(0), 0
    trainer = zygote.start(tmp_path / "killed", tokens, **arguments)

    def times() -> str:
        return "".join(path.read_text() for path in trainer.root.glob(".resume/*/timing.csv"))

    for _ in range(8):
        for _ in range(draws.randrange(1, 20)):
            before = times()
            trainer.until(lambda: times() != before or (trainer.root / "model").exists())  # noqa: B023
        kills += trainer.stop(signal.SIGKILL) == -signal.SIGKILL
        trainer = zygote.start(tmp_path / "killed", tokens, **arguments)
    assert trainer.wait() == 0
    assert kills >= 5
    assert digest(trainer.root / "model") == digest(tmp_path / "quiet" / "model")


def test_two_processes_go_back_together(tmp_path: Path, tokens: Path, zygote: Zygote):
    arguments = AT_ONCE | back(1, factor=2.0**-132)
    trainers = zygote.together(tmp_path / "two", tokens, **arguments)
    assert [each.wait() for each in trainers] == [0, 0]
    assert "going back to the checkpoint of step 0 and on with" in trainers[0].said
    assert trainers[1].said == ""
    assert zygote.start(tmp_path / "one", tokens, **arguments).wait() == 0
    assert_same_to_rounding(tmp_path / "two", tmp_path / "one")


def test_it_ends_when_it_went_back_often_enough_and_goes_on_with_more(here: Path, tokens: Path, said: io.StringIO):
    every = {"runtime": {"checkpoint": {"every_steps": None}}}
    with pytest.raises(UserError, match=r"It had gone back 1 time\. Lower train.learning_rate") as error:
        run(tokens, here / "model", **GROWING, **back(1), **every)
    assert "(train.divergence.returns, 1)." in str(error.value)
    assert "return 1 of 1" in said.getvalue()
    more = run(tokens, here / "model", **GROWING, **back(9), **every)
    assert "the learning rate lowered by 1 return from divergence\n" in said.getvalue()
    assert "is gone" not in said.getvalue()
    del more.state.epoch_weights[:]
    once = run(tokens, here / "once", **GROWING, **back(9), **every)
    assert once.state.returns == more.state.returns


def test_wished_only_afterwards_it_takes_the_oldest_there_is_and_says_so(here: Path, tokens: Path, said: io.StringIO):
    with pytest.raises(UserError, match="diverged"):
        run(tokens, here / "model", **GROWING)
    oldest = min(int(path.name[5:]) for path in here.glob(".resume/*/step-*"))
    finished = run(tokens, here / "model", **GROWING, **back(9, factor=1e-6, every=100))
    assert finished.state.returns[0].to == oldest
    assert (
        f"going back to the checkpoint of step {oldest} (that of step 0 is gone, so the result is not"
        in said.getvalue()
    )


def test_with_no_earlier_checkpoint_it_ends(here: Path, tokens: Path):
    with pytest.raises(UserError, match="diverged"):
        run(tokens, here / "model", **AT_ONCE)
    with pytest.raises(UserError, match=r"the last good checkpoint is .*step-000000001\. Lower"):
        run(tokens, here / "model", **AT_ONCE, **back(1))


def test_the_released_checkpoints_are_all_that_more_epochs_may_have_to_go_back_to(here: Path, tokens: Path):
    run(tokens, here / "model", epochs=4, schedule={"type": "wsd"}, **back(1))
    steps = sorted(int(path.name[5:]) for path in (here / "model" / "resume").iterdir())
    assert steps == [8, 12, 15, 16, 20]


@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(1, 700))
def test_wherever_a_run_diverges_its_mark_was_kept_from_there_on(step: int, more: int, every: int):
    divergence = DivergenceParams(returns=1, rate_factor=0.5, every_steps=every)
    mark = min(marks(step + more, divergence))
    assert mark % every == 0
    assert mark == 0 or mark <= step + more - every
    assert mark > step or mark in marks(step, divergence)
    assert len(marks(step, divergence)) <= 2 + (every == 1)
    assert marks(step, divergence.model_copy(update={"returns": 0})) == set()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def long(**changes: Any) -> TrainParams:
    return train_params(**{"epochs": 12, "schedule": {"type": "wsd"}} | back(3) | changes)


def keep(store: Store, state: RunState, train: TrainParams | None = None) -> None:
    store.save(state, build(model_config(), seed=0), {}, (train or long()).model_dump(include=HORIZON))


def place(store: Store, state: RunState) -> int | None:
    beginning = where_to_return(store, long(), state, steps_per_epoch=5, say=print)
    assert beginning is None or beginning.checkpoint
    if beginning and beginning.checkpoint:
        assert beginning.checkpoint.state.returns == [*state.returns, Return(state.step, beginning.step)]
    return beginning.step if beginning else None


@pytest.mark.parametrize(("diverged", "to"), [(5, 0), (8, 4), (11, 4), (12, 8), (19, 12)])
def test_it_goes_back_to_a_mark_that_lies_far_enough_before(store: Store, diverged: int, to: int):
    for step in (0, 3, 4, 8, 10, 11, 12, 16, 17):
        keep(store, RunState(step=step))
    assert place(store, RunState(step=diverged)) == to


def test_what_another_branch_left_is_no_place_to_go_back_to(store: Store):
    once = [Return(diverged=14, to=4)]
    keep(store, RunState(step=4))
    keep(store, RunState(step=12))  # given up, but a slow mirror still had it
    assert place(store, RunState(step=16, returns=once)) == 4
    keep(store, RunState(step=8, returns=once))
    assert place(store, RunState(step=16, returns=once)) == 8
    assert place(store, RunState(step=16, returns=[Return(12, 4)])) == 4
    keep(store, RunState(step=8), long(epochs=1))  # whose rate fell from step 4 on
    assert place(store, RunState(step=13)) == 4


def test_a_damaged_mark_gives_way_to_the_one_before(store: Store):
    for step in (4, 8, 12):
        keep(store, RunState(step=step))
    (store.checkpoint_folder(8) / "state.json").write_text("{}")
    assert place(store, RunState(step=14)) == 4


def test_a_run_descends_from_what_it_went_through_only():
    once, twice = [Return(20, 10)], [Return(20, 10), Return(15, 5)]
    here = RunState(step=30, returns=twice)
    for step, returns, expected in [
        (5, [], True),
        (6, [], False),
        (5, once, True),
        (12, once, False),
        (30, twice, True),
        (31, twice, False),
        (5, [Return(21, 10)], False),
    ]:
        assert here.descends_from(RunState(step=step, returns=returns)) == expected
    assert not replace(here, returns=once).descends_from(here)
