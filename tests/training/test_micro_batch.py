"""How many windows go through the model at a time changes nothing but memory; and where that runs out."""

import io
import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.nn import functional as F

from tests.training.tiny import CPU, digest, model_config, run
from tokenmill.model.build import build
from tokenmill.model.weights import load_model
from tokenmill.training import step as step_module
from tokenmill.training.memory import window_bytes, windows_that_fit

WIDE: dict[str, Any] = {"batch_size": 5, "gradient_accumulation_steps": 2, "optimizer": "adamw"}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_model(folder / "epoch-2").named_parameters())


def assert_same_to_rounding(ours: Path, theirs: Path) -> None:
    for (name, a), b in zip(weights(ours).items(), weights(theirs).values(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-4, msg=name)


def small_memory(monkeypatch: pytest.MonkeyPatch, *, holds: int) -> list[int]:
    """A device that runs out of memory with more than so many windows; gives the micro-batches that were tried."""
    tried: list[int] = []
    real = step_module.loss_of

    def loss_or_nothing(model: Any, inputs_BT: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        tried.append(len(inputs_BT))
        loss = real(model, inputs_BT, targets_BT)
        if len(inputs_BT) > holds and torch.is_grad_enabled():
            loss.backward()  # some gradients are there already when memory runs out
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return loss

    monkeypatch.setattr(step_module, "loss_of", loss_or_nothing)
    return tried


@pytest.mark.parametrize("micro_batch", [1, 3, 10, 99])
def test_a_whole_run_is_the_same_to_rounding(here: Path, tokens: Path, micro_batch: int):
    run(tokens, here / "auto", **WIDE)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "model", runtime={"micro_batch_size": micro_batch}, **WIDE)
    assert_same_to_rounding(here / "model", here / "auto")


def test_auto_is_the_batch_and_gives_its_bytes(here: Path, tokens: Path):
    run(tokens, here / "auto", **WIDE)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "five", runtime={"micro_batch_size": 5}, **WIDE)
    assert digest(here / "five") == digest(here / "auto")
    shutil.rmtree(here / ".resume")
    run(tokens, here / "two", runtime={"micro_batch_size": 2}, **WIDE)
    assert digest(here / "two") != digest(here / "auto"), "or micro_batch_size does nothing"


def test_it_may_change_in_the_middle(here: Path, tokens: Path, said: io.StringIO):
    run(tokens, here / "auto", **WIDE)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "one", epochs=1, runtime={"micro_batch_size": 2}, **WIDE)
    run(tokens, here / "model", runtime={"micro_batch_size": 3}, **WIDE)
    assert "going on from step 2 of 4" in said.getvalue()
    assert_same_to_rounding(here / "model", here / "auto")


@pytest.mark.parametrize("architecture", ["gpt2", "modern"])
def test_what_a_window_needs_is_counted_without_memory_for_it(architecture: str):
    config = model_config(architecture=architecture, n_embd=64, context_length=64)
    model, kept = build(config, seed=0), dict[int, int]()
    own = {parameter.data_ptr() for parameter in model.parameters()}

    def count(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = 0 if storage.data_ptr() in own else storage.nbytes()
        return tensor

    ids_BT = torch.zeros(8, 64, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        loss = F.cross_entropy(model(ids_BT).flatten(0, 1), ids_BT.flatten())
    assert loss.requires_grad
    assert window_bytes(config) == pytest.approx(sum(kept.values()) / 8, rel=0.5)


def test_on_the_cpu_auto_takes_what_memory_should_hold(monkeypatch: pytest.MonkeyPatch):
    config = model_config()
    each = window_bytes(config)

    def with_room_for(windows: float) -> int:
        free = psutil.virtual_memory()._replace(available=int(2 * windows * each))
        monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
        return windows_that_fit(config, 12, CPU.device)

    assert [with_room_for(n) for n in (100, 12.1, 11, 6.1, 5, 0.1)] == [12, 12, 6, 6, 3, 1]
