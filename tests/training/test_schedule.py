"""What follows from a step's number: its sequences and its learning rate.

Tokens are their own positions, so that coverage is an equality of sets.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.tiny import CONTEXT, sequences_in, text_workload, train_params, workload
from tokenmill.formats.mixture import Stretch
from tokenmill.model.sequences import Sequences
from tokenmill.training.params import TrainParams
from tokenmill.training.schedule import Workload, same_rates

CPU = torch.device("cpu")


def params(epochs: int, **schedule: Any) -> TrainParams:
    return train_params(epochs=epochs, learning_rate=1.0, schedule={"warmup_steps": 10} | schedule)


def rates(
    train: TrainParams, *, steps_per_epoch: int = 100, count: int | None = None
) -> list[float]:
    work = workload(train, steps_per_epoch=steps_per_epoch)
    return [work.learning_rate_at(step) for step in range(count or work.steps)]


@pytest.mark.parametrize("kind", ["constant", "power", "wsd", "cosine"])
def test_warm_up_rises_evenly_to_the_peak(kind: str):
    assert rates(params(4, type=kind))[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])


@pytest.mark.parametrize("kind", ["constant", "wsd"])
def test_without_warm_up_the_first_step_has_the_peak(kind: str):
    assert rates(params(4, type=kind, warmup_steps=0))[0] == 1.0


def test_constant_rate_stays_at_the_peak():
    assert set(rates(params(4, type="constant"))[10:]) == {1.0}


@pytest.mark.parametrize(("constant", "begin"), [(40, 40), (None, 10)])
def test_power_falls_with_a_power_of_the_step(constant: int | None, begin: int):
    values = rates(params(4, type="power", constant_steps=constant, power=0.5))
    assert set(values[9:begin]) == {1.0}
    assert all(a > b for a, b in pairwise(values[begin - 1 :]))
    assert values[4 * begin - 1] == pytest.approx(0.5)


def test_power_falls_from_the_peak_after_a_longer_warm_up():
    few, none = (params(4, type="power", constant_steps=steps) for steps in (3, None))
    assert rates(few) == rates(none)


def test_power_without_warm_up_falls_from_the_first_step_on():
    values = rates(params(4, type="power", warmup_steps=0, constant_steps=None, power=1.0))
    assert values[:4] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])


def test_wsd_follows_its_example():
    values = rates(params(4, type="wsd", decay_fraction=0.25, final_fraction=0.1))
    assert all(a < b for a, b in pairwise(values[:10]))
    assert set(values[9:300]) == {1.0}
    assert all(a > b for a, b in pairwise(values[299:]))
    assert values[349] == pytest.approx(0.55)
    assert values[399] == pytest.approx(0.1)


@given(
    steps=st.integers(1, 60),
    warmup=st.integers(0, 60),
    decay=st.floats(0.01, 1.0),
    final=st.floats(0.0, 0.9),
)
def test_wsd_falls_evenly_from_the_peak(steps: int, warmup: int, decay: float, final: float):
    schedule = {"warmup_steps": warmup, "decay_fraction": decay, "final_fraction": final}
    values = rates(params(1, type="wsd", **schedule), steps_per_epoch=steps)
    falls = [a - b for a, b in pairwise([1.0, *values[warmup:]]) if a != b]
    assert falls == pytest.approx([(1 - final) / max(1, len(falls))] * len(falls))


def test_cosine_falls_through_the_middle_to_the_final_fraction():
    values = rates(params(4, type="cosine", final_fraction=0.2))
    assert all(a > b for a, b in pairwise(values[9:]))
    assert values[10 + 390 // 2 - 1] == pytest.approx(0.6)
    assert values[399] == pytest.approx(0.2)


@pytest.mark.parametrize("kind", ["wsd", "cosine"])
def test_rate_stays_at_its_end_after_the_horizon(kind: str):
    values = rates(params(6, type=kind, horizon_epochs=4, final_fraction=0.1))
    assert values[:400] == rates(params(4, type=kind, final_fraction=0.1))
    assert values[400:] == pytest.approx([0.1] * 200)


def assert_same_before(old: TrainParams, new: TrainParams, step: int) -> None:
    """Of 400 steps those before `step` have the same rates, and it has another one, if there is
    such a step."""
    runs = [workload(train, steps_per_epoch=100) for train in (old, new)]
    for steps in {1, step - 1, step, min(step + 1, 400), 400}:
        assert same_rates(*runs, steps=steps) == (steps <= step)


def test_same_rates_end_where_the_first_one_differs():
    for kind in ("constant", "power", "wsd", "cosine"):
        for horizon in (None, 3):
            old, new = (params(epochs, type=kind, horizon_epochs=horizon) for epochs in (4, 6))
            pairs = zip(rates(old, count=400), rates(new, count=400), strict=True)
            expected = next((step for step, (a, b) in enumerate(pairs) if a != b), 400)
            assert_same_before(old, new, expected)


@pytest.mark.parametrize(
    ("kind", "horizon", "expected"),
    [
        ("constant", None, 400),
        ("power", None, 400),
        ("wsd", None, 300),
        ("wsd", 4, 400),
        ("cosine", None, 10),
        ("cosine", 4, 400),
        ("cosine", 9, 400),
    ],
)
def test_rates_of_four_and_six_epochs_are_the_same(kind: str, horizon: int | None, expected: int):
    four, six = (params(epochs, type=kind, horizon_epochs=horizon) for epochs in (4, 6))
    for old, new in ((four, six), (six, four)):
        assert_same_before(old, new, expected)


def test_horizon_written_out_is_the_same_schedule():
    old = params(4, type="wsd")
    new = params(4, type="wsd", horizon_epochs=4)
    assert_same_before(old, new, 400)


def test_pre_decay_step_is_where_the_decay_begins():
    assert workload(params(4, type="wsd"), steps_per_epoch=100).pre_decay_step == 300
    assert (
        workload(params(4, type="wsd", decay_fraction=1.0), steps_per_epoch=100).pre_decay_step
        == 10
    )
    assert workload(params(4, type="constant"), steps_per_epoch=100).pre_decay_step is None
    assert workload(params(4, type="cosine"), steps_per_epoch=100).pre_decay_step is None
    assert (
        workload(params(4, type="wsd", horizon_epochs=4), steps_per_epoch=100).pre_decay_step
        is None
    )


def test_no_pre_decay_step_at_the_start_or_end():
    assert (
        workload(
            params(4, type="wsd", decay_fraction=1.0, warmup_steps=0), steps_per_epoch=100
        ).pre_decay_step
        is None
    )
    assert (
        workload(params(1, type="wsd", warmup_steps=20), steps_per_epoch=10).pre_decay_step is None
    )


def test_workload_counts_steps_and_tokens():
    work = workload(
        train_params(epochs=2, batch_size=2, gradient_accumulation_steps=2), steps_per_epoch=3
    )
    assert (work.sequences_per_step, work.sequences, work.steps_per_epoch, work.steps) == (
        4,
        12,
        3,
        6,
    )
    assert (work.tokens_per_step, work.tokens_per_epoch) == (4 * CONTEXT, 12 * CONTEXT)
    shorter = replace(work, tokens=work.tokens - 3 * CONTEXT - 1)
    assert (shorter.sequences, shorter.steps_per_epoch) == (8, 2)
    assert [len(replace(work, tokens=9 * CONTEXT + 1).sequences_at(step)) for step in range(3)] == [
        4,
        4,
        1,
    ]


def test_a_step_sees_no_more_than_the_text():
    work = replace(
        workload(train_params(batch_size=64), steps_per_epoch=1), tokens=19 * CONTEXT + 1
    )
    assert (work.tokens_per_step, work.steps_per_epoch) == (19 * CONTEXT, 1)


def sequences_of(count: int, *, context: int = 4, left_over: int = 0) -> Sequences:
    tokens = torch.arange(count * context + 1 + left_over, dtype=torch.int32)
    return Sequences(tokens.unfold(0, context + 1, context), device=CPU)


def chats(count: int, *, per_step: int, seed: int = 0) -> Workload:
    """A run on so many sequences that are cut already."""
    tokens = count * CONTEXT + 1
    return text_workload(
        tokens=tokens, context_length=CONTEXT, per_step=per_step, seed=seed, whole_texts=True
    )


@pytest.mark.parametrize("left_over", [0, 1, 3])
def test_epoch_sees_every_token_and_target_once(left_over: int):
    sequences = sequences_of(13, left_over=left_over)
    work = chats(sequences.count, per_step=5)
    parts = [sequences.gather(work.sequences_at(step)) for step in range(work.steps_per_epoch)]
    inputs, targets = (torch.cat(kind).flatten().tolist() for kind in zip(*parts, strict=True))
    assert sorted(inputs) == list(range(13 * 4))
    assert sorted(targets) == list(range(1, 13 * 4 + 1))


def test_last_step_of_an_epoch_takes_the_rest():
    work = chats(13, per_step=5)
    assert work.steps_per_epoch == 3
    assert [len(work.sequences_at(step)) for step in range(6)] == [5, 5, 3] * 2


def test_each_epoch_and_seed_has_its_own_order():
    both = [chats(50, per_step=7, seed=seed) for seed in (0, 1)]
    orders = [tuple(sequences_in(work, epoch)) for work in both for epoch in (0, 1)]
    assert len(set(orders)) == 4
    assert all(sorted(order) == list(range(50)) for order in orders)


def test_step_sees_the_same_in_any_order_of_asking():
    in_order, otherwise, once = (chats(23, per_step=4, seed=5) for _ in range(3))
    expected = {step: in_order.sequences_at(step).tolist() for step in range(30)}
    for step in np.random.default_rng(0).permutation(30):
        assert otherwise.sequences_at(int(step)).tolist() == expected[int(step)]
    assert once.sequences_at(29).tolist() == expected[29]


@given(
    tokens=st.integers(9, 400),
    context=st.integers(2, 8),
    per_step=st.integers(1, 7),
    seed=st.integers(0, 2**32 - 1),
)
def test_each_epoch_cuts_the_text_elsewhere(tokens: int, context: int, per_step: int, seed: int):
    work = text_workload(tokens=tokens, context_length=context, per_step=per_step, seed=seed)
    assert sorted(sequences_in(work, 0)) == [context * number for number in range(work.sequences)]
    everywhere = Sequences(torch.arange(tokens).unfold(0, context + 1, 1), device=CPU)
    for epoch in range(1, 6):
        starts = sorted(sequences_in(work, epoch))
        inputs, targets = everywhere.gather(np.array(starts))
        assert inputs.tolist() == [list(range(at, at + context)) for at in starts]
        assert targets.equal(inputs + 1)
        assert len(starts) == work.sequences
        assert starts[0] < context
        assert starts[-1] <= tokens - 1 - context
        apart = [after - before for before, after in pairwise(starts)]
        assert set(apart[:-1]) <= {context}
        assert set(apart[-1:]) <= set(range(context + 1))


def test_epochs_begin_at_many_tokens():
    work = text_workload(tokens=1000, context_length=8, per_step=50, seed=0)
    assert {min(sequences_in(work, epoch)) for epoch in range(60)} == set(range(8))


def test_fine_tuning_does_not_cut_its_texts():
    work = replace(workload(train_params(epochs=3), steps_per_epoch=5), whole_texts=True)
    each = list(range(work.sequences))
    assert [sorted(sequences_in(work, epoch)) for epoch in range(3)] == [each] * 3


def test_orders_change_only_with_the_numerics():
    """Else a run that another version began would go on in another order. Where these numbers
    change, raise NUMERICS_VERSION in src/tokenmill/training/identity.py."""
    whole = text_workload(tokens=30, context_length=4, per_step=3, seed=7)
    assert whole.order_of(0).tolist() == [0, 20, 24, 8, 16, 4, 12]
    assert whole.order_of(1).tolist() == [12, 0, 8, 4, 16, 24, 20]
    of_two = replace(whole, stretches=(Stretch("a", 17, 0.5), Stretch(None, 13, 1.0)))
    assert of_two.order_of(1).tolist() == [17, 12, 25, 4, 21]
