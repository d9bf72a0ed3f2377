"""What a checkpoint costs decides how often the clock asks for one; copies are not copied again."""

import contextlib
from unittest import mock

import pytest
import torch

from tests.training.tiny import model_config, runtime_params
from tokenmill.model.gpt import build
from tokenmill.training.checkpoints import background as module
from tokenmill.training.checkpoints.background import COST_SHARE, AsyncCheckpointer
from tokenmill.training.history import RunState


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in its only element."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_what_costs_much_is_saved_less_often(clock: list[float]):
    params = runtime_params(checkpoint={"every_seconds": 60}).checkpoint
    saver = AsyncCheckpointer(mock.Mock(), params, keep_steps=set(), resumable={})

    def waits(cost: float) -> list[bool]:
        with saver.timed():
            clock[0] += cost
            saver.save(RunState(step=1), mock.Mock(), {}, owned=True)
        saved_at = clock[0]
        late = []
        for passed in (59, 61, cost / COST_SHARE - 1, cost / COST_SHARE + 1):
            clock[0] = saved_at + passed
            late.append(saver.is_late(2))
        return late

    assert waits(0.1) == [False, True, False, False]
    assert waits(12.0) == [False, False, False, True]
    assert waits(0.1) == [False, True, False, False], "the last one counts"


@pytest.mark.parametrize("owned", [False, True])
def test_only_what_training_changes_is_copied(owned: bool):
    store = mock.Mock()
    saver = AsyncCheckpointer(store, runtime_params().checkpoint, keep_steps=set(), resumable={})
    model = build(model_config(), seed=0)
    moments = {"head.weight/exp_avg": torch.zeros(3)}
    with saver.active():
        saver.save(RunState(step=1), model, moments, owned=owned)
    ((_, saved, tensors, _),) = (call.args for call in store.save.call_args_list)
    pointers = [each.head.weight.data_ptr() for each in (model, saved)]
    assert (pointers[0] == pointers[1]) is owned
    same = tensors["head.weight/exp_avg"] is moments["head.weight/exp_avg"]
    assert same is owned


def test_older_checkpoints_go_when_the_newer_one_is_told():
    """What `saved` writes names no checkpoint that was removed."""
    events = mock.Mock()
    params = runtime_params().checkpoint
    saver = AsyncCheckpointer(
        events.store, params, keep_steps={7}, resumable={}, saved=events.saved, mirror=events.mirror
    )
    state = RunState(step=9)
    with saver.active():
        saver.save(state, mock.Mock(), {}, owned=True)
    assert [name for name, *_ in events.mock_calls] == [
        "store.save",
        "saved",
        "store.prune",
        "mirror",
    ]
    events.store.prune.assert_called_once_with(state, newest=params.keep, also={7})
    events.mirror.assert_called_once_with(9)


@pytest.mark.parametrize("again", [False, True])
def test_what_could_not_be_written_ends_training(again: bool):
    """At the next checkpoint, or at the end."""
    store = mock.Mock(**{"save.side_effect": OSError("full")})
    saver = AsyncCheckpointer(store, runtime_params().checkpoint, keep_steps=set(), resumable={})
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.raises(OSError, match="full"))
        stack.enter_context(saver.active())
        saver.save(RunState(step=1), mock.Mock(), {}, owned=True)
        if again:
            saver.save(RunState(step=2), mock.Mock(), {}, owned=True)
    assert store.save.call_count == 1


def test_without_memory_for_a_copy_the_run_itself_is_written(monkeypatch: pytest.MonkeyPatch):
    store = mock.Mock()
    saver = AsyncCheckpointer(store, runtime_params().checkpoint, keep_steps=set(), resumable={})
    model = mock.Mock()
    monkeypatch.setattr(module, "copy_model", mock.Mock(side_effect=MemoryError))
    saver.save(RunState(step=1), model, {})
    assert store.save.call_args.args[1] is model, "and is on disk before the next step"
    monkeypatch.setattr(module, "copy_model", mock.Mock(side_effect=RuntimeError))
    with pytest.raises(RuntimeError):
        saver.save(RunState(step=2), model, {})
