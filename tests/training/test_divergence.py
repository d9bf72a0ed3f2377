"""A loss or gradient that is no longer finite ends the run before it reaches a weight."""

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from tests.training.tiny import checkpoints, digest, run, train_params, workload
from tokenmill.core.errors import UserError
from tokenmill.model.gpt import GPT
from tokenmill.training.checkpoints.store import Checkpoint, read_state
from tokenmill.training.live import read_live_run
from tokenmill.training.loop import to_lower
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.params import OPTIMIZERS

EXPLODING: dict[str, Any] = {
    "model": {"architecture": "gpt2"},
    "learning_rate": 3e37,
    "schedule": {"warmup_steps": 1000},
    "epochs": 4,
}


def diverged(tokens: Path, output: Path, **changes: Any) -> str:
    with pytest.raises(UserError, match="training diverged in step") as error:
        run(tokens, output, **changes)
    assert not output.exists()
    return str(error.value)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_of_just_before_the_divergence_are_saved(here: Path, tokens: Path, optimizer: str):
    """However late the losses are read, the weights saved are those before the first bad step, and
    they are finite."""
    folders = {}
    for every in (1, 20):
        runtime = {"checkpoint": {"every_steps": None}}
        message = diverged(
            tokens,
            here / "model",
            runtime=runtime,
            optimizer=optimizer,
            log_every_steps=every,
            **EXPLODING,
        )
        good = checkpoints(here)[-1]
        assert (
            f"diverged in step {good + 1}, epoch {good // 5 + 1}, batch {good % 5 + 1} of 5 "
            "(sequences " in message
        )
        assert f"learning rate {3e37 * (good + 1) / 1000:.3g}" in message
        assert f"step-{good:09d}. Lower train.learning_rate (3e+37)" in message
        folders[every] = next(here.glob(f".resume/*/step-{good:09d}")).rename(
            here / f"good-{every}"
        )
    weights = safetensors.torch.load_file(folders[20] / "model.safetensors")
    assert all(value.isfinite().all() for value in weights.values())
    hashes = [digest(folders[every]) for every in (1, 20)]
    assert hashes[0]["model.safetensors"] == hashes[1]["model.safetensors"]
    assert hashes[0]["optimizer.safetensors"] == hashes[1]["optimizer.safetensors"]


def test_same_run_again_stops_at_the_same_step(here: Path, tokens: Path):
    first = diverged(tokens, here / "model", **EXPLODING)
    saved = checkpoints(here)
    assert diverged(tokens, here / "model", **EXPLODING) == first
    assert checkpoints(here) == saved


BREAKING = {"learning_rate": 1e30, "schedule": {"warmup_steps": 0}, "batch_size": 100, "epochs": 1}
"""The only step breaks the weights, which the validation notices."""


@pytest.mark.parametrize(
    ("changes", "where", "saved"),
    [(EXPLODING, "in step 2", 1), (EXPLODING | BREAKING, "after step 1", 0)],
)
def test_a_divergence_is_told_until_another_run_starts(
    here: Path, tokens: Path, changes: dict[str, Any], where: str, saved: int
):
    live = here / "live"
    for _ in range(2):  # the second one continues where no step can be made
        with pytest.raises(UserError, match="diverged"):
            run(tokens, here / "model", live=live, **changes)
    told = read_live_run(live)
    assert told is not None
    assert told.saved == saved
    assert told.diverged.startswith(f"{where}; lower train.learning_rate (")
    run(tokens, here / "model", live=live, epochs=1)
    assert read_live_run(live) is None


@pytest.mark.parametrize(("whole_texts", "section"), [(False, "train"), (True, "finetune")])
def test_the_rate_to_lower_is_that_of_the_stage(whole_texts: bool, section: str):
    work = replace(workload(train_params(), steps_per_epoch=10), whole_texts=whole_texts)
    assert f"{section}.learning_rate (0.01)" in to_lower(work, torch.bfloat16)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_float32_is_not_to_be_replaced(precision: torch.dtype):
    work = workload(train_params(), steps_per_epoch=10)
    names = ["learning_rate", "warmup_steps", *["precision"] * (precision != torch.float32)]
    found = re.findall(r"(\w+) \(", to_lower(work, precision))
    assert found == names


def test_divergence_in_the_first_step_saves_nothing(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    norm = torch.nn.utils.get_total_norm
    monkeypatch.setattr(torch.nn.utils, "get_total_norm", lambda each: norm(each) * math.inf)
    message = diverged(tokens, here / "model", log_every_steps=1)
    assert "diverged in step 1, epoch 1, batch 1 of 5" in message
    assert "gradient norm inf" in message
    assert "there was no checkpoint yet" in message
    assert checkpoints(here) == []


def test_nothing_is_measured_after_the_divergence(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    norm, steps = torch.nn.utils.get_total_norm, itertools.count(1)
    monkeypatch.setattr(
        torch.nn.utils,
        "get_total_norm",
        lambda each: norm(each) * (1 if next(steps) < 3 else math.inf),
    )
    message = diverged(tokens, here / "model", log_every_steps=20, validate_every_steps=1)
    assert "diverged in step 3," in message
    saved = read_state(next(here.glob(".resume/*/step-000000002")))
    assert [row.step for row in saved.state.validations] == [1, 2]


def test_an_update_that_breaks_the_weights_is_not_kept(here: Path, tokens: Path):
    """No later step is there to notice it."""
    with pytest.raises(UserError, match=r"after step 1 .*train\.learning_rate"):
        run(tokens, here / "model", **EXPLODING | BREAKING)
    assert checkpoints(here) == []
    assert not (here / "model").exists()


@pytest.mark.parametrize("every", [None, 1])
def test_broken_weights_are_no_checkpoint(here: Path, tokens: Path, every: int | None):
    message = diverged(
        tokens,
        here / "model",
        learning_rate=1e38,
        schedule={"warmup_steps": 0},
        runtime={"checkpoint": {"every_steps": every}},
    )
    assert "in step 2," in message
    assert "there was no checkpoint yet" in message
    assert checkpoints(here) == []


def test_damaged_weights_leave_their_checkpoint(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    run(tokens, here / "one", epochs=1)
    good = digest(next(here.glob(".resume/*/step-000000005")))
    load = Checkpoint.load

    def load_and_damage(self: Checkpoint, model: GPT) -> dict[str, Tensor]:
        optimizer_state = load(self, model)
        with torch.no_grad():
            next(model.parameters())[:] = torch.inf
        return optimizer_state

    monkeypatch.setattr(Checkpoint, "load", load_and_damage)
    message = diverged(tokens, here / "two", epochs=2)
    assert "in step 6," in message
    assert "loss nan" in message
    assert "step-000000005. Lower train.learning_rate (0.01)" in message
    assert checkpoints(here) == [3, 5]
    assert digest(next(here.glob(".resume/*/step-000000005"))) == good


def test_gradients_that_always_overflow_float16_end_it(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each overflow halves the scale of 65,536; from one half on there is no hope."""

    def backward(self: Optimizer, loss: Tensor) -> None:
        self._scaler.scale(loss * 1e30).backward()

    monkeypatch.setattr(Optimizer, "backward", backward)
    message = diverged(
        tokens, here / "model", epochs=8, precision="float16", optimizer="muon", log_every_steps=1
    )
    assert "in step 17, epoch 4, batch 2 of 5" in message
    assert "take another train.precision (float16)" in message
