"""A model as it is compiled for a GPU computes what it computes anywhere else."""

import pytest
import torch
from torch import Tensor

from tests.model.small import ARCHITECTURES, small_config
from tokenmill.model import ops
from tokenmill.model.gpt import build


def gradients(architecture: str, precision: torch.dtype) -> list[Tensor]:
    """The loss of a small model, and the gradient of each parameter."""
    model = build(small_config(architecture), seed=0)
    draws = torch.Generator().manual_seed(1)
    # Else biases are 0, weights of norms 1, and logits nearly nothing
    for parameter in model.parameters():
        torch.nn.init.normal_(
            parameter, mean=parameter.detach().mean().item(), std=0.2, generator=draws
        )
    ids = torch.randint(model.config.vocab_size, (4, model.config.context_length), generator=draws)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == torch.bfloat16):
        loss = model(ids, targets_BT=ids)
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(ops, "for_gpu", lambda _: True)
    return monkeypatch


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_code_for_a_gpu_has_the_same_gradients(architecture: str, as_on_a_gpu: pytest.MonkeyPatch):
    found = gradients(architecture, torch.float32)
    as_on_a_gpu.undo()
    for each, expected in zip(found, gradients(architecture, torch.float32), strict=True):
        torch.testing.assert_close(each, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_code_for_a_gpu_rounds_no_worse(architecture: str, as_on_a_gpu: pytest.MonkeyPatch):
    found = gradients(architecture, torch.bfloat16)
    as_on_a_gpu.undo()
    usual = gradients(architecture, torch.bfloat16)
    exact = gradients(architecture, torch.float32)
    for each, other, true in zip(found, usual, exact, strict=True):
        assert (each - true).norm() <= 1.5 * (other - true).norm() + 1e-3 * true.norm()
