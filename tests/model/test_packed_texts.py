"""Several texts in one sequence: no text sees another, and the mean is over the targets that
count."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.model.small import small_config
from tokenmill.model import ops
from tokenmill.model.device import Compute
from tokenmill.model.gpt import GPT, build
from tokenmill.model.ops import IGNORED
from tokenmill.model.sequences import PackedTexts, loss_on, mean_loss
from tokenmill.training.step import split_into_micro_batches

CPU = Compute(device=torch.device("cpu"), precision=torch.float32)


def texts(*rows: list[list[int]], length: int = 12) -> PackedTexts:
    """Sequences of these texts, of which every second target counts."""
    layers = np.zeros((len(rows), 3, length), np.int32)
    layers[:, 1] = IGNORED
    for layer, row in zip(layers, rows, strict=True):
        start = 0
        for ids in row:
            stop = start + len(ids) - 1
            layer[0, start:stop] = ids[:-1]
            layer[2, start:] = start
            layer[1, start:stop:2] = ids[1::2]
            start = stop
    return PackedTexts(layers, device=CPU.device)


FIRST = [3, 1, 4, 1, 5]
SECOND = [9, 2, 6, 5, 3, 5, 8, 9]
THIRD = [7, 9, 3]


def loss(model: GPT, *rows: list[list[int]], micro_batch: int = 9) -> float:
    return mean_loss(
        model, texts(*rows), np.arange(len(rows)), micro_batch=micro_batch, compute=CPU
    )


def test_a_text_has_the_same_loss_alone_and_packed(model: GPT):
    alone = [loss(model, [text]) for text in (FIRST, SECOND, THIRD)]
    mean = np.average(alone, weights=[2, 4, 1])
    assert loss(model, [FIRST, SECOND]) == pytest.approx(
        np.average(alone[:2], weights=[2, 4]), rel=1e-5
    )
    assert loss(model, [SECOND, FIRST], [THIRD]) == pytest.approx(mean, rel=1e-5)
    assert len({round(each, 3) for each in alone}) == 3


def test_a_text_does_not_change_with_what_is_packed_before_it(model: GPT):
    inputs, _, starts = texts([FIRST, SECOND]).gather(np.array([0]))
    other = inputs.clone()
    other[0, :4] = 11
    with torch.no_grad():
        before = model(inputs, starts_BT=starts)
        after = model(other, starts_BT=starts)
    assert torch.equal(before[0, 4:11], after[0, 4:11])
    assert not torch.equal(before[0, :4], after[0, :4])


def test_one_text_in_a_row_is_an_ordinary_sequence(model: GPT):
    ids = torch.randint(23, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(
            model(ids, starts_BT=torch.zeros_like(ids)), model(ids), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("micro_batch", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2])
def test_the_gradient_is_the_mean_over_targets(micro_batch: int, size: int):
    sequences = texts([FIRST], [SECOND, FIRST], [THIRD])
    index = np.arange(3)
    models = [build(small_config("gpt2"), seed=0) for _ in range(2)]
    for rank in range(size):
        parts = split_into_micro_batches(
            index, micro_batch=micro_batch, rank=rank, size=size, weigh=sequences.weight
        )
        for part, weight in parts:
            each = loss_on(models[0], sequences, part, micro_batch=micro_batch, compute=CPU)
            (each * weight / size).backward()
    inputs, targets, starts = sequences.gather(index)
    logits = models[1](inputs, starts_BT=starts)
    F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED).backward()
    for found, expected in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-4, atol=1e-7)


def test_rows_that_fill_up_packed_texts_have_no_targets():
    inputs, targets, starts = texts([FIRST], [SECOND]).gather(np.array([1]), at_least=3)
    assert inputs.shape == targets.shape == starts.shape == (3, 12)
    assert (targets[1:] == IGNORED).all()
    assert (targets[0] != IGNORED).sum() == 4


@pytest.mark.parametrize("cap", [None, 15.0])
def test_ignored_targets_add_nothing_but_count(cap: float | None):
    x = torch.randn(2, 5, 8)
    head = torch.randn(30, 8)
    targets = torch.tensor([[3, IGNORED, 7, IGNORED, 1], [IGNORED, 4, IGNORED, IGNORED, 2]])
    kept = targets != IGNORED
    expected = ops.next_token_loss(x[kept], head, targets[kept], cap=cap) * 0.5
    assert ops.next_token_loss(x, head, targets, cap=cap, some_ignored=True) == pytest.approx(
        expected.item()
    )
