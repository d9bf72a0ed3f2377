"""One optimizer step: the loss by hand, the same however it is cut, and what ten steps give at this
NUMERICS_VERSION."""

import itertools
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tests.training.tiny import CONTEXT, CPU, VOCABULARY, model_config, train_params
from tokenmill.model.config import Architecture
from tokenmill.model.gpt import GPT, build
from tokenmill.model.sequences import Sequences, mean_loss
from tokenmill.training.identity import NUMERICS_VERSION
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.params import OPTIMIZERS
from tokenmill.training.step import (
    Batch,
    MicroBatch,
    seed_dropout,
    split_into_micro_batches,
    train_step,
)

INDEX = np.array([4, 0, 2, 3, 1])
EVERY = list(itertools.product(get_args(Architecture), OPTIMIZERS))

GOLDEN_VERSION = 13
"""The NUMERICS_VERSION of training/identity.py with which GOLDEN was recorded."""

GOLDEN = {
    ("gpt2", "adamw"): [
        3.379708,
        3.234040,
        3.089732,
        2.959445,
        2.840631,
        2.724439,
        2.598581,
        2.464129,
        2.337421,
        2.206216,
    ],
    ("gpt2", "muon"): [
        3.379708,
        3.238472,
        3.105378,
        2.968147,
        2.843000,
        2.715678,
        2.575433,
        2.434348,
        2.299786,
        2.164442,
    ],
    ("modern", "adamw"): [
        3.366418,
        3.260824,
        3.113080,
        2.977517,
        2.845678,
        2.715874,
        2.584952,
        2.455758,
        2.329398,
        2.204666,
    ],
    ("modern", "muon"): [
        3.366418,
        3.252843,
        3.106302,
        2.963276,
        2.828056,
        2.693971,
        2.560616,
        2.429011,
        2.300448,
        2.174997,
    ],
    ("speedrun", "adamw"): [
        3.366418,
        3.292396,
        3.130784,
        3.004311,
        2.886271,
        2.762865,
        2.637683,
        2.514808,
        2.395000,
        2.276728,
    ],
    ("speedrun", "muon"): [
        3.366418,
        3.285357,
        3.126389,
        2.996571,
        2.877955,
        2.753407,
        2.625810,
        2.499733,
        2.376932,
        2.255698,
    ],
}
"""The losses of ten steps in float32 by architecture and optimizer. They agree to 2e-7 on
processors with AVX-512, with AVX2 and with neither, and with PyTorch 2.11, 2.13, 2.14 and 2.15."""

RECORD = """
Did you mean to change what a step computes? If not, this is a bug. If so:
1. raise NUMERICS_VERSION in src/tokenmill/training/identity.py, so that no older checkpoint is
   continued;
2. set GOLDEN_VERSION in tests/training/test_step.py to it, and GOLDEN to the losses found here;
3. say in CHANGELOG.md why the numbers changed.
"""


def some_sequences() -> Sequences:
    steps = np.random.default_rng(0).choice([1, 1, 4], size=5 * CONTEXT + 1)
    tokens = torch.from_numpy((np.cumsum(steps) % VOCABULARY).astype(np.int32))
    return Sequences(tokens.unfold(0, CONTEXT + 1, CONTEXT), device=CPU.device)


def some_steps(
    architecture: str, optimizer: str, *, micro_batch: int, count: int = 3, read: bool = True
) -> tuple[list[tuple[Any, Any]], GPT]:
    model = build(model_config(architecture=architecture), seed=0)
    optim = Optimizer(model, train_params(optimizer=optimizer), CPU)
    optim.set_rates(0.01)
    results = [
        train_step(
            model,
            optim,
            some_sequences(),
            Batch(INDEX),
            micro_batch=MicroBatch(micro_batch),
            compute=CPU,
        )
        for _ in range(count)
    ]
    found = [(r.loss, r.gradient_norm) for r in results]
    return [(loss.item(), norm.item()) for loss, norm in found] if read else found, model


@pytest.fixture
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Muon iterates in float32 everywhere: in bfloat16, which it takes where a processor multiplies
    it, the last bits of a gradient may turn a number by 2e-4."""
    monkeypatch.setattr("tokenmill.training.optimizer.multiplies_bfloat16", lambda _: False)


@pytest.mark.usefixtures("in_float32")
@pytest.mark.parametrize(("architecture", "optimizer"), EVERY)
def test_a_numerics_version_keeps_its_numbers(architecture: str, optimizer: str):
    found, _ = some_steps(architecture, optimizer, micro_batch=2, count=10)
    losses = [round(loss, 6) for loss, _ in found]
    assert GOLDEN_VERSION == NUMERICS_VERSION, f"{losses}{RECORD}"
    assert (architecture, optimizer) in GOLDEN, f"of a new one GOLDEN holds {losses}"
    assert losses == pytest.approx(GOLDEN[architecture, optimizer], rel=1e-5), f"{losses}{RECORD}"


@pytest.mark.usefixtures("in_float32")
@pytest.mark.parametrize(("architecture", "optimizer"), EVERY)
def test_the_update_is_the_same_however_the_step_is_cut(architecture: str, optimizer: str):
    # Five sequences: in one piece, as two, two and a short one, and one by one.
    whole, whole_model = some_steps(architecture, optimizer, micro_batch=5)
    for micro_batch in (1, 2, 4):
        parts, model = some_steps(architecture, optimizer, micro_batch=micro_batch)
        assert parts[0] == pytest.approx(whole[0], rel=1e-5)
        assert parts[2] == pytest.approx(whole[2], rel=1e-4)
        for ours, theirs in zip(model.parameters(), whole_model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


class NothingIsRead(TorchDispatchMode):
    """Refuses to turn a tensor into a number, for which a GPU would be waited for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, (
            "a value is read in the middle of a step"
        )
        return func(*args, **kwargs or {})


@pytest.mark.parametrize(("architecture", "optimizer"), EVERY)
def test_a_step_never_waits_for_a_gpu(
    architecture: str, optimizer: str, monkeypatch: pytest.MonkeyPatch
):
    """So the host is ahead of it, and gathers the next batch meanwhile."""
    with pytest.raises(AssertionError, match="a value is read"), NothingIsRead():
        # A CPU decides about the update here and now
        some_steps(architecture, optimizer, micro_batch=2)
    expected, _ = some_steps(architecture, optimizer, micro_batch=2)

    monkeypatch.setattr("tokenmill.training.optimizer.DECIDE_IN_STEP", ("cpu",))
    with NothingIsRead():
        results, _ = some_steps(architecture, optimizer, micro_batch=2, read=False)
    assert [(loss.item(), norm.item()) for loss, norm in results] == expected


@pytest.mark.parametrize("micro_batch", [1, 2, 5])
def test_the_loss_is_the_cross_entropy_by_hand(micro_batch: int):
    model = build(model_config(architecture="gpt2"), seed=0)
    sequences = some_sequences()
    inputs_BT, targets_BT = sequences.gather(INDEX)
    with torch.no_grad():
        logits_BTV = model(inputs_BT).double()
    likelihood_BT = logits_BTV.softmax(-1).gather(-1, targets_BT[..., None])
    expected = -likelihood_BT.log().mean().item()
    assert mean_loss(
        model, sequences, INDEX, micro_batch=micro_batch, compute=CPU
    ) == pytest.approx(expected, rel=1e-6)
    optim = Optimizer(model, train_params(), CPU)
    optim.set_rates(0.1)
    result = train_step(
        model, optim, sequences, Batch(INDEX), micro_batch=MicroBatch(micro_batch), compute=CPU
    )
    assert result.loss.item() == pytest.approx(expected, rel=1e-6)
    assert mean_loss(model, sequences, INDEX, micro_batch=5, compute=CPU) < expected


@pytest.mark.parametrize("seed", [0, 1, 20_260_131, 2**32 - 1])
def test_dropout_follows_from_seed_and_step(seed: int):
    def drawn(step: int, rank: int = 0) -> list[float]:
        seed_dropout(seed, step, device=CPU.device, rank=rank)
        return torch.rand(3).tolist()

    first = drawn(0)
    assert drawn(1) != first
    assert drawn(0) == first
    assert len({tuple(drawn(0, rank)) for rank in range(4)}) == 4
    seed_dropout(seed ^ 1, 0, device=CPU.device)
    assert torch.rand(3).tolist() != first


@given(sequences=st.integers(1, 40), micro_batch=st.integers(1, 12), size=st.integers(1, 7))
def test_every_sequence_has_the_same_weight_however_split(
    sequences: int, micro_batch: int, size: int
):
    index = np.random.default_rng(sequences).permutation(sequences)
    by_rank = [
        split_into_micro_batches(index, micro_batch=micro_batch, rank=rank, size=size)
        for rank in range(size)
    ]
    assert len({len(mine) for mine in by_rank}) == 1, "all call the model equally often"
    real = [(part, weight) for mine in by_rank for part, weight in mine if weight]
    assert np.concatenate([part for part, _ in real]).tolist() == index.tolist()
    for part, weight in real:
        assert len(part) <= micro_batch
        assert weight / size / len(part) == pytest.approx(1 / sequences)


def test_one_process_gets_full_micro_batches_and_a_rest():
    cut = split_into_micro_batches(np.arange(11), micro_batch=4, rank=0, size=1)
    assert [part.tolist() for part, _ in cut] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert [weight for _, weight in cut] == [4 / 11, 4 / 11, 3 / 11]
