"""The average of weights: what it is, by another calculation; that it is what is measured and kept;
that it belongs to what a run continues from."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.training.test_early_stopping import target_of, weights
from tests.training.tiny import CPU, digest, model_config, run, train_params, write_tokens
from tokenmill.formats.token_row import open_tokens
from tokenmill.model.gpt import GPT, build
from tokenmill.model.huggingface import load_model
from tokenmill.model.sequences import WholeText, mean_loss
from tokenmill.training import loop
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.step import StepResult, train_step

POWER = 3.0
AVERAGED: dict[str, Any] = {
    "average_power": POWER,
    "schedule": {"type": "power", "constant_steps": 4},
    "optimizer": "muon",
}


def parameters(model: GPT) -> dict[str, np.ndarray]:
    return {name: p.detach().double().numpy() for name, p in model.named_parameters()}


def run_recording(tokens: Path, out: Path, **changes: Any) -> list[dict[str, np.ndarray]]:
    """Train, and return the weights after each step."""
    found: list[dict[str, np.ndarray]] = []

    def recording(model: Any, *arguments: Any, **options: Any) -> StepResult:
        result = train_step(model, *arguments, **options)
        found.append(parameters(model))
        return result

    with mock.patch.object(loop, "train_step", recording):
        run(tokens, out, **changes)
    return found


def test_the_kept_weights_are_the_average_of_those_before(here: Path, tokens: Path):
    found = run_recording(tokens, here / "model", epochs=4, **AVERAGED)
    assert len(found) == 20
    for epoch in (1, 2, 4):
        counted = found[: 5 * epoch]
        edges = np.arange(len(counted) + 1.0) ** (POWER + 1)
        shares = np.diff(edges) / edges[-1]
        kept = parameters(load_model(here / f"model/epoch-{epoch}"))
        for name in counted[0]:
            expected = sum(s * each[name] for s, each in zip(shares, counted, strict=True))
            np.testing.assert_allclose(kept[name], expected, atol=2e-6, err_msg=name)


def test_the_measured_loss_is_that_of_the_kept_weights(here: Path, tokens: Path):
    outcome = run(tokens, here / "model", epochs=3, **AVERAGED)
    val = np.concatenate([[0], open_tokens(tokens, "val")[:]]).astype(np.int32)
    for row in outcome.state.epochs:
        model = load_model(here / f"model/epoch-{row.epoch}")
        text = WholeText(val, context_length=model.config.context_length, device=CPU.device)
        loss = mean_loss(model, text, np.arange(text.count), micro_batch=4, compute=CPU)
        assert row.val_loss == pytest.approx(loss, rel=1e-6)


def test_an_average_changes_no_step(here: Path, tokens: Path):
    plain: dict[str, Any] = AVERAGED | {"average_power": None}
    averaged = run(tokens, here / "averaged", **AVERAGED).state
    assert run(tokens, here / "plain", **plain).state.steps == averaged.steps


@pytest.mark.parametrize("schedule", [{"type": "power"}, {"type": "wsd", "decay_fraction": 0.5}])
def test_two_averaged_epochs_and_two_more_are_four(
    here: Path, tokens: Path, schedule: dict[str, Any]
):
    averaged: dict[str, Any] = AVERAGED | {"schedule": schedule}
    run(tokens, here / "quiet", epochs=4, **averaged)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "two", epochs=2, **averaged)
    run(tokens, here / "four", epochs=4, **averaged)
    assert digest(here / "four") == digest(here / "quiet")


@pytest.mark.parametrize("repeats", [False, True])
def test_an_average_moves_and_changes_places(repeats: bool):
    model = build(model_config(architecture="gpt2"), seed=0)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    optimizer = Optimizer(model, train_params(average_power=1.0), CPU, repeats=repeats)
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 8.0)
    optimizer.set_rates(0.0, average=0.25)
    optimizer._move_average(unless=torch.tensor(data=False))
    assert_all(optimizer._averages(), 2.0)
    optimizer._move_average(unless=torch.tensor(data=True))
    assert_all(optimizer._averages(), 2.0)
    with optimizer.averaged():
        assert_all(model.parameters(), 2.0)
    assert_all(model.parameters(), 8.0)
    assert_all(optimizer._averages(), 2.0)


def assert_all(tensors: Iterable[Tensor], value: float) -> None:
    assert {number for tensor in tensors for number in tensor.unique().tolist()} == {value}


@pytest.fixture(scope="module")
def long_tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokens(tmp_path_factory.mktemp("long") / "tokens", sequences=400)


@pytest.mark.slow
def test_validations_come_where_the_target_is_expected(here: Path, long_tokens: Path):
    """The run ends as it would in one go, also after it went on; with a lower target it goes on,
    through the same weights."""
    whole = run(long_tokens, here / "whole", epochs=2, validate_every_steps=1, **AVERAGED)
    (here / ".resume").rename(here / "elsewhere")
    target = target_of(whole, 80)
    once = run(long_tokens, here / "once", epochs=2, target_loss=target, **AVERAGED)
    steps = [row.step for row in once.state.validations]
    assert steps[0] == 50
    assert once.state.step == steps[-1] < 100
    assert once.state.epochs[-1].val_loss <= target
    first = digest(here / "once")
    (here / ".resume").rename(here / "elsewhere too")
    run(long_tokens, here / "again", epochs=1, target_loss=target / 2, **AVERAGED)
    for folder in sorted(here.glob(".resume/*/step-*"))[-1:]:
        shutil.rmtree(folder)
    again = run(long_tokens, here / "again", epochs=2, target_loss=target, **AVERAGED)
    assert again.state.step == once.state.step
    assert digest(here / "again") == first
    lower = target_of(whole, 150)
    further = run(long_tokens, here / "further", epochs=2, target_loss=lower, **AVERAGED)
    assert further.state.epochs[-1].val_loss <= lower
    assert further.state.validations[: len(steps)] == once.state.validations
    first = "epoch-1/model.safetensors"
    assert weights(here / "further")[first] == weights(here / "whole")[first]
