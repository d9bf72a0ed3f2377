"""Compiled code trains only if it has the gradients of the model itself."""

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from tests.training.tiny import CONTEXT, model_config, run
from tokenmill.core.errors import UserError
from tokenmill.model import modern, ops
from tokenmill.model.config import Architecture
from tokenmill.model.device import Compute
from tokenmill.model.gpt import GPT, build
from tokenmill.model.sequences import Sequences
from tokenmill.training.agreement import check_gradients, differing
from tokenmill.training.compile import Compilation
from tokenmill.training.step import MicroBatch

CPU = torch.device("cpu")
PRECISIONS = (torch.float32, torch.bfloat16, torch.float16)
ARCHITECTURES = [each for each in get_args(Architecture) if each != "modern"]
"""`speedrun` has all code of `modern`."""


class Lossy:
    """A model called as its compiled form would be; what `losing` names gives no gradient."""

    def __init__(self, model: GPT, losing: str):
        self.model = model
        self.losing = losing

    def __call__(self, *given: Tensor, **named: Tensor) -> Tensor:
        """The same loss as the model's."""
        with pytest.MonkeyPatch.context() as patch:
            if self.losing == "the lookup":
                found = self.model.embed
                patch.setattr(self.model, "embed", lambda *all_: found(*all_).detach())
            else:
                whole = getattr(modern, self.losing)
                patch.setattr(modern, self.losing, lambda *all_: whole(*all_).detach())
            return self.model(*given, **named)

    def train(self) -> None:
        """Nothing else."""


def check(model: GPT, compiled: Any, precision: torch.dtype = torch.float32) -> None:
    tokens = torch.arange(CONTEXT * 5 + 1, dtype=torch.int32) % model.config.vocab_size
    check_gradients(
        model,
        compiled,
        Sequences(tokens.unfold(0, CONTEXT + 1, CONTEXT), device=CPU),
        np.array([3, 1, 0]),
        micro_batch=MicroBatch(2),
        compute=Compute(CPU, precision),
    )


@pytest.mark.usefixtures("forgetful_compiler")
@pytest.mark.parametrize("precision", PRECISIONS, ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_traced_for_a_gpu_has_the_same_gradients(
    architecture: str, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ops, "for_gpu", lambda _: torch.compiler.is_dynamo_compiling())
    model = build(model_config(architecture=architecture, n_layer=1), seed=0)
    before = copy.deepcopy(model.state_dict())
    check(model, torch.compile(model, dynamic=False, backend="aot_eager"), precision)
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("losing", ["the lookup", "relu_squared", "apply_rotary", "rms_norm"])
def test_a_lost_gradient_is_found(losing: str):
    model = build(model_config(architecture="modern"), seed=0)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(UserError, match=r"runtime\.compile: "):
        check(model, Lossy(model, losing))
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.usefixtures("forgetful_compiler")
def test_what_a_cpu_compiles_in_the_model_is_compared_too(monkeypatch: pytest.MonkeyPatch):
    """There the model to call is the model itself, of which a part is compiled."""

    def losing(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        return lambda *given: graph(
            *(each if isinstance(each, Parameter) else each.detach() for each in given)
        )

    losing_what_is_looked_up = functools.partial(torch.compile, backend=losing)
    monkeypatch.setattr(
        torch, "compile", lambda part, **_: losing_what_is_looked_up(part, dynamic=False)
    )
    monkeypatch.setattr("tokenmill.training.compile._on_cpu", dict)
    model = build(model_config(architecture="modern", n_layer=1), seed=0)
    with pytest.raises(UserError, match=r"tokens\.weight: 100% away"):
        check(model, Compilation(on=True, why="").of(model))


def test_gradients_that_are_next_to_nothing_may_differ():
    large, none = torch.ones(50, 50), torch.full((50,), 1e-6)
    assert not list(differing([large, none], [large, -none]))
    assert [number for number, _ in differing([large, none], [-large, none])] == [0]
    assert [number for number, _ in differing([large, none], [large * torch.nan, none])] == [0]


def test_a_run_that_ended_early_compiles_nothing_more(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    compared = mock.Mock()
    monkeypatch.setattr("tokenmill.training.loop.check_gradients", compared)
    monkeypatch.setattr("tokenmill.training.compile.missing_compiler", lambda _: None)
    monkeypatch.setattr(Compilation, "of", lambda _, model: model)
    for _ in range(2):
        run(tokens, here / "model", epochs=4, target_loss=99.0, runtime={"compile": "on"})
    assert compared.call_count == 1


def test_a_run_ends_before_it_learns_something_else(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tokenmill.training.compile.missing_compiler", lambda _: None)
    monkeypatch.setattr(Compilation, "of", lambda _, model: Lossy(model, "the lookup"))
    with pytest.raises(UserError, match=r"runtime\.compile: "):
        run(tokens, here / "model", epochs=1, runtime={"compile": "on"})
    assert not (here / "model").exists()
    monkeypatch.setattr(Compilation, "of", lambda _, model: model)
    run(tokens, here / "model", epochs=1, runtime={"compile": "on"})
    checked = (here / "model" / "epoch-1" / "model.safetensors").read_bytes()
    run(tokens, here / "plain", epochs=1, runtime={"compile": "off"})
    assert (here / "plain" / "epoch-1" / "model.safetensors").read_bytes() == checked
