"""The learning rate as a function of the step, and where two such functions part."""

from itertools import pairwise
from typing import Any

import pytest

from tests.training.tiny import train_params
from tokenmill.training.params import TrainParams
from tokenmill.training.schedule import first_difference, lr_at, pre_decay_step


def params(epochs: int, **schedule: Any) -> TrainParams:
    return train_params(epochs=epochs, learning_rate=1.0, schedule={"warmup_steps": 10} | schedule)


def rates(train: TrainParams, *, steps_per_epoch: int = 100, count: int | None = None) -> list[float]:
    count = count or train.epochs * steps_per_epoch
    return [lr_at(step, train=train, steps_per_epoch=steps_per_epoch) for step in range(count)]


@pytest.mark.parametrize("kind", ["constant", "wsd", "cosine"])
def test_the_warm_up_rises_evenly_to_the_peak(kind: str):
    assert rates(params(4, type=kind))[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])


@pytest.mark.parametrize("kind", ["constant", "wsd"])
def test_without_warm_up_the_first_step_has_the_peak(kind: str):
    assert rates(params(4, type=kind, warmup_steps=0))[0] == 1.0


def test_constant_stays():
    assert set(rates(params(4, type="constant"))[10:]) == {1.0}


def test_wsd_does_what_its_example_says():
    values = rates(params(4, type="wsd", decay_fraction=0.25, final_fraction=0.1))
    assert all(a < b for a, b in pairwise(values[:10]))
    assert set(values[9:300]) == {1.0}
    assert all(a > b for a, b in pairwise(values[299:]))
    assert values[349] == pytest.approx(0.55)
    assert values[399] == pytest.approx(0.1)


def test_cosine_falls_through_the_middle_to_the_final_fraction():
    values = rates(params(4, type="cosine", final_fraction=0.2))
    assert all(a > b for a, b in pairwise(values[9:]))
    assert values[10 + 390 // 2 - 1] == pytest.approx(0.6)
    assert values[399] == pytest.approx(0.2)


@pytest.mark.parametrize("kind", ["wsd", "cosine"])
def test_after_a_horizon_the_rate_stays_at_its_end(kind: str):
    values = rates(params(6, type=kind, horizon_epochs=4, final_fraction=0.1))
    assert values[:400] == rates(params(4, type=kind, final_fraction=0.1))
    assert values[400:] == pytest.approx([0.1] * 200)


def test_first_difference_is_the_first_step_whose_rates_differ():
    for kind in ("constant", "wsd", "cosine"):
        for horizon in (None, 3):
            old, new = (params(epochs, type=kind, horizon_epochs=horizon) for epochs in (4, 6))
            pairs = zip(rates(old, count=400), rates(new, count=400), strict=True)
            expected = next((step for step, (a, b) in enumerate(pairs) if a != b), 400)
            assert first_difference(old, new, steps_per_epoch=100, before=400) == expected


@pytest.mark.parametrize(
    ("kind", "horizon", "expected"),
    [
        ("constant", None, 400),
        ("wsd", None, 300),
        ("wsd", 4, 400),
        ("cosine", None, 10),
        ("cosine", 4, 400),
        ("cosine", 9, 400),
    ],
)
def test_where_four_epochs_and_six_part(kind: str, horizon: int | None, expected: int):
    four, six = (params(epochs, type=kind, horizon_epochs=horizon) for epochs in (4, 6))
    for old, new in ((four, six), (six, four)):
        assert first_difference(old, new, steps_per_epoch=100, before=400) == expected
        assert first_difference(old, new, steps_per_epoch=100, before=5) == 5


def test_a_horizon_written_out_is_the_same_schedule():
    old, new = params(4, type="wsd"), params(4, type="wsd", horizon_epochs=4)
    assert first_difference(old, new, steps_per_epoch=100, before=400) == 400


def test_where_the_decay_begins():
    assert pre_decay_step(params(4, type="wsd"), steps_per_epoch=100) == 300
    assert pre_decay_step(params(4, type="wsd", decay_fraction=1.0), steps_per_epoch=100) == 10
    assert pre_decay_step(params(4, type="constant"), steps_per_epoch=100) is None
    assert pre_decay_step(params(4, type="cosine"), steps_per_epoch=100) is None
    assert pre_decay_step(params(4, type="wsd", horizon_epochs=4), steps_per_epoch=100) is None


def test_a_decay_from_the_first_step_or_after_the_last_has_no_beginning_to_keep():
    assert pre_decay_step(params(4, type="wsd", decay_fraction=1.0, warmup_steps=0), steps_per_epoch=100) is None
    assert pre_decay_step(params(1, type="wsd", warmup_steps=20), steps_per_epoch=10) is None
