"""Which tokens come when. Tokens are their own positions, so that coverage is an equality of sets."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.model.sequences import Sequences
from tokenmill.training.sampler import EpochSampler, split_into_micro_batches

CPU = torch.device("cpu")


def sequences_of(count: int, *, context: int = 4, left_over: int = 0) -> Sequences:
    tokens = torch.arange(count * context + 1 + left_over, dtype=torch.int32)
    return Sequences(tokens, context_length=context, device=CPU)


@pytest.mark.parametrize("left_over", [0, 1, 3])
def test_an_epoch_sees_every_token_once_and_every_next_token_once(left_over: int):
    sequences = sequences_of(13, left_over=left_over)
    order = EpochSampler(sequences=sequences.count, per_step=5, seed=0)
    parts = [sequences.gather(order.indices_at(step)) for step in range(order.steps_per_epoch)]
    inputs, targets = (torch.cat(kind).flatten().tolist() for kind in zip(*parts, strict=True))
    assert sorted(inputs) == list(range(13 * 4))
    assert sorted(targets) == list(range(1, 13 * 4 + 1))


def test_the_last_step_of_an_epoch_takes_what_is_left():
    order = EpochSampler(sequences=13, per_step=5, seed=0)
    assert order.steps_per_epoch == 3
    assert [len(order.indices_at(step)) for step in range(6)] == [5, 5, 3] * 2


def test_each_epoch_and_each_seed_has_its_own_order():
    def epoch(number: int, seed: int) -> tuple[int, ...]:
        order = EpochSampler(sequences=50, per_step=7, seed=seed)
        return tuple(w for step in range(number * 8, number * 8 + 8) for w in order.indices_at(step))

    orders = [epoch(0, 0), epoch(1, 0), epoch(0, 1), epoch(1, 1)]
    assert len(set(orders)) == 4
    assert all(sorted(order) == list(range(50)) for order in orders)


def test_a_step_is_the_same_whenever_it_is_asked_for():
    in_order = EpochSampler(sequences=23, per_step=4, seed=5)
    expected = {step: in_order.indices_at(step).tolist() for step in range(30)}
    shuffled = EpochSampler(sequences=23, per_step=4, seed=5)
    for step in np.random.default_rng(0).permutation(30):
        assert shuffled.indices_at(int(step)).tolist() == expected[int(step)]
    assert EpochSampler(sequences=23, per_step=4, seed=5).indices_at(29).tolist() == expected[29]


@given(sequences=st.integers(1, 40), micro_batch=st.integers(1, 12), size=st.integers(1, 7))
def test_every_sequence_of_a_step_weighs_the_same_in_whatever_process_and_piece(
    sequences: int, micro_batch: int, size: int
):
    index = np.random.default_rng(sequences).permutation(sequences)
    all_pieces = [
        split_into_micro_batches(index, micro_batch=micro_batch, rank=rank, size=size) for rank in range(size)
    ]
    assert len({len(mine) for mine in all_pieces}) == 1, "all call the model equally often"
    real = [(part, weight) for mine in all_pieces for part, weight in mine if weight]
    assert np.concatenate([part for part, _ in real]).tolist() == index.tolist()
    for part, weight in real:
        assert len(part) <= micro_batch
        assert weight / size / len(part) == pytest.approx(1 / sequences)


def test_one_process_cuts_a_step_into_full_pieces_and_a_rest():
    cut = split_into_micro_batches(np.arange(11), micro_batch=4, rank=0, size=1)
    assert [part.tolist() for part, _ in cut] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert [weight for _, weight in cut] == [4 / 11, 4 / 11, 3 / 11]
