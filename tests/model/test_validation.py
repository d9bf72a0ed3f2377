"""The mean loss of a model over sequences, and what is derived from it."""

import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from tests.imports import ROOT
from tests.model.small import small_config
from tokenmill.model import sequences
from tokenmill.model.device import Compute
from tokenmill.model.gpt import GPT, build
from tokenmill.model.sequences import (
    Sequences,
    WholeText,
    bits_per_byte,
    mean_loss,
    perplexity,
    token_losses,
)

CPU = Compute(device=torch.device("cpu"), precision=torch.float32)
INDEX = np.array([4, 0, 2, 3, 1])


def five_sequences() -> Sequences:
    tokens = torch.randint(
        23, (5 * 12 + 1,), generator=torch.Generator().manual_seed(0), dtype=torch.int32
    )
    return Sequences(tokens.unfold(0, 13, 12), device=CPU.device)


@pytest.mark.parametrize("micro_batch", [1, 2, 5])
def test_the_mean_loss_is_the_cross_entropy_by_hand(model: GPT, micro_batch: int):
    inputs_BT, targets_BT = five_sequences().gather(INDEX)
    with torch.no_grad():
        likelihood_BT = model(inputs_BT).double().softmax(-1).gather(-1, targets_BT[..., None])
    expected = -likelihood_BT.log().mean().item()
    found = mean_loss(model, five_sequences(), INDEX, micro_batch=micro_batch, compute=CPU)
    assert found == pytest.approx(expected, rel=1e-6)


def test_a_model_that_knows_nothing_has_the_loss_of_a_guess():
    model = build(small_config("gpt2"), seed=0)
    torch.nn.init.zeros_(model.head.weight)
    assert mean_loss(model, five_sequences(), INDEX, micro_batch=5, compute=CPU) == pytest.approx(
        math.log(23)
    )


def test_validation_has_no_dropout_and_restores_the_mode():
    model = build(small_config("modern", dropout=0.5), seed=0).train()
    losses = {
        mean_loss(model, five_sequences(), INDEX, micro_batch=2, compute=CPU) for _ in range(3)
    }
    assert len(losses) == 1
    assert model.training
    mean_loss(model.eval(), five_sequences(), INDEX, micro_batch=2, compute=CPU)
    assert not model.training


class SmallMemory(torch.nn.Module):
    """A model that runs out of memory with more than two sequences."""

    def __init__(self, model: GPT):
        super().__init__()
        self.model = model
        self.config = model.config
        self.sizes = list[int]()

    def forward(self, ids_BT: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        """The loss, if memory holds the sequences."""
        if len(ids_BT) > 2:
            raise MemoryError
        self.sizes.append(len(ids_BT))
        return self.model(ids_BT, *others)


def test_fewer_sequences_at_a_time_when_memory_runs_out(model: GPT):
    expected = mean_loss(model, five_sequences(), INDEX, micro_batch=5, compute=CPU)
    small: Any = SmallMemory(model)
    assert mean_loss(small, five_sequences(), INDEX, micro_batch=4, compute=CPU) == pytest.approx(
        expected, rel=1e-6
    )
    assert small.sizes == [2, 2, 1]
    text = WholeText(
        np.arange(5 * 12 + 1, dtype=np.int32) % 23, context_length=12, device=CPU.device
    )
    losses = [token_losses(one, text, micro_batch=4, compute=CPU) for one in (small, model)]
    np.testing.assert_allclose(*losses, rtol=1e-4)
    with pytest.raises(MemoryError):
        mean_loss(small, five_sequences(), INDEX, micro_batch=4, compute=CPU, shrink=False)


def test_a_short_last_sequence_counts_by_its_targets(model: GPT):
    ids = np.random.default_rng(0).integers(23, size=2 * 12 + 5, dtype=np.int32)
    text = WholeText(ids, context_length=12, device=CPU.device)
    inputs_BT, targets_BT = text.gather(np.arange(3))
    with torch.no_grad():
        logs_BTV = model(inputs_BT).double().log_softmax(-1)
    logs_BT = logs_BTV.gather(-1, targets_BT.clamp(min=0)[..., None])[..., 0]
    expected = -logs_BT[targets_BT >= 0].mean().item()
    for micro_batch in (1, 2, 3):
        found = mean_loss(model, text, np.arange(3), micro_batch=micro_batch, compute=CPU)
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("most_logits", [1, 23 * 12 * 2, 10**9])
def test_losses_of_tokens_are_those_of_the_mean(
    model: GPT, most_logits: int, monkeypatch: pytest.MonkeyPatch
):
    """However many logits there may be at a time."""
    monkeypatch.setattr(sequences, "LOGITS_AT_A_TIME", most_logits)
    ids = np.random.default_rng(0).integers(23, size=4 * 12 + 5, dtype=np.int32)
    text = WholeText(ids, context_length=12, device=CPU.device)
    losses = token_losses(model.train(), text, micro_batch=3, compute=CPU)
    assert model.training
    assert losses.shape == (len(ids) - 1,)
    whole = mean_loss(model, text, np.arange(text.count), micro_batch=3, compute=CPU)
    assert losses.mean() == pytest.approx(whole, rel=1e-6)
    last = WholeText(ids[-5:], context_length=12, device=CPU.device)
    alone = mean_loss(model, last, np.arange(1), micro_batch=1, compute=CPU)
    assert losses[-4:].mean() == pytest.approx(alone, rel=1e-6)


MEASURED = """
import resource
import numpy as np
import torch
from tests.model.small import small_config
from tokenmill.model.device import Compute, configure_process
from tokenmill.model.gpt import build
from tokenmill.model.sequences import WholeText, mean_loss, token_losses

compute = Compute(device=torch.device("cpu"), precision=torch.float32)
configure_process(compute)
shape = {"vocab_size": 4096, "context_length": 256, "n_embd": 64}
model = build(small_config("modern", **shape), seed=0)
for parts in (8, 40):
    ids = np.arange(parts * 4 * 256 + 1, dtype=np.int32) % 4096
    text = WholeText(ids, context_length=256, device=compute.device)
    token_losses(model, text, micro_batch=4, compute=compute)
    mean_loss(model, text, np.arange(text.count), micro_batch=4, compute=compute)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
"""Prints the peak of memory after a text, and after one that is five times as long. A part has 16
MiB of logits, so all of them would be 500 MiB more. Not every processor multiplies bfloat16:
without, that takes ten times as long."""


@pytest.mark.skipif(sys.platform != "linux", reason="KiB are Linux's unit")
def test_a_longer_text_needs_no_more_memory():
    said = subprocess.check_output(
        [sys.executable, "-c", MEASURED],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        text=True,
    )
    short, long = map(int, said.split())
    assert long < short + (100 << 10)


def test_bits_per_byte_by_hand():
    # ln 2 nats are one bit; 10 tokens of one bit over 40 bytes are a quarter of a bit each
    assert bits_per_byte(math.log(2), tokens=10, text_bytes=40) == pytest.approx(0.25)
    # a uniform guess among 256 bytes, one token each: eight bits
    assert bits_per_byte(math.log(256), tokens=123, text_bytes=123) == pytest.approx(8.0)


def test_perplexity_of_a_uniform_guess_is_the_vocabulary():
    assert perplexity(math.log(1024)) == pytest.approx(1024)
    assert perplexity(800.0) == math.inf
