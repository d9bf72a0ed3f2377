"""The loss in pieces against PyTorch's own on all logits at once, and the vocabulary that a GPU sees filled up."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from tests.model.small import small_config
from tokenmill.model import loss
from tokenmill.model.build import build

SIZES = st.integers(1, 7)


@settings(max_examples=80, deadline=None)
@given(
    batch=SIZES,
    positions=SIZES,
    width=SIZES,
    vocabulary=st.integers(2, 90),
    cap=st.sampled_from([None, 15.0, 1.5]),
    padding=st.integers(0, 70),
    rows=st.integers(1, 50),
    seed=st.integers(0, 99),
)
def test_loss_and_gradients_are_those_of_all_logits_at_once(
    *, batch: int, positions: int, width: int, vocabulary: int, cap: float | None, padding: int, rows: int, seed: int
):
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(batch * positions, width, generator=draws, dtype=torch.float64, requires_grad=True)
    head = torch.randn(vocabulary, width, generator=draws, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(vocabulary, (batch * positions,), generator=draws)
    logits = x @ head.T if cap is None else cap * torch.tanh(x @ head.T / cap)
    expected = F.cross_entropy(logits.float(), targets)
    ours = loss._Loss.apply(x, head, targets, cap, x.dtype, padding, rows, True)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    weight = 3.0  # a loss is scaled where a step is cut into pieces
    for got, wanted in zip(
        torch.autograd.grad(weight * ours, (x, head)), torch.autograd.grad(weight * expected, (x, head)), strict=True
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", ["gpt2", "modern"])
def test_a_models_loss_is_that_of_its_logits(architecture: str):
    model = build(small_config(architecture), seed=0)
    for parameter in model.parameters():  # else the starting logits are nearly nothing
        torch.nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(1))
    ids = torch.randint(23, (3, 12), generator=torch.Generator().manual_seed(2))
    targets = ids.roll(1, 1)
    expected = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    got = model(ids, targets_BT=targets)
    torch.testing.assert_close(got, expected)
    for ours, theirs in zip(
        torch.autograd.grad(got, [*model.parameters()]),
        torch.autograd.grad(expected, [*model.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("architecture", ["gpt2", "modern"])
def test_ids_that_fill_up_the_vocabulary_are_seen_by_nobody(architecture: str):
    model = build(small_config(architecture), seed=0)
    ids = torch.zeros(1, 3, dtype=torch.long)
    assert model(ids).shape[-1] == len(model.head.weight) == 23
    plain, padded = (
        loss._Loss.apply(
            torch.ones(2, 16), model.head.weight, torch.tensor([22, 0]), None, torch.float32, padding, 9, True
        )
        for padding in (0, -23 % loss.ALIGNED)
    )
    assert torch.equal(plain, padded), "zeros among the logits would raise it"


def test_never_more_logits_than_promised(monkeypatch: pytest.MonkeyPatch):
    largest = [0]
    highest = torch.Tensor.amax

    def note(logits: torch.Tensor, axis: int, *, keepdim: bool) -> torch.Tensor:
        largest[0] = max(largest[0], logits.numel())
        return highest(logits, axis, keepdim=keepdim)

    monkeypatch.setattr(torch.Tensor, "amax", note)
    monkeypatch.setattr(loss, "LOGITS_AT_A_TIME", 100)
    x, head = torch.randn(4, 8, 5, requires_grad=True), torch.randn(30, 5, requires_grad=True)
    loss.next_token_loss(x, head, torch.zeros(4, 8, dtype=torch.long), cap=None).backward()
    assert 0 < largest[0] <= 100
