"""How many sequences go through the model at a time changes nothing but memory; and where that runs out."""

import io
import json
import os
import shutil
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest
import torch

from tests.training.alone import start
from tests.training.tiny import CPU, assert_same_to_rounding, digest, model_config, run, runtime_params, write_tokens
from tokenmill.core.errors import UserError
from tokenmill.model import validation
from tokenmill.model.device import is_out_of_memory
from tokenmill.model.size import memory
from tokenmill.training import interrupt, step
from tokenmill.training.launch import launch
from tokenmill.training.memory import StartAgain, sequences_that_fit

WIDE: dict[str, Any] = {"batch_size": 5, "gradient_accumulation_steps": 2, "optimizer": "adamw"}


def small_memory(monkeypatch: pytest.MonkeyPatch, *, holds: int) -> list[int]:
    """A device that runs out of memory with more than so many sequences; gives the micro-batches that were tried."""
    tried: list[int] = []
    real = validation.loss_of

    def loss_or_nothing(model: Any, inputs_BT: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        tried.append(len(inputs_BT))
        loss = real(model, inputs_BT, targets_BT)
        if len(inputs_BT) > holds and torch.is_grad_enabled():
            loss.backward()  # some gradients are there already when memory runs out
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return loss

    monkeypatch.setattr(step, "loss_of", loss_or_nothing)
    return tried


@pytest.mark.parametrize("micro_batch", [1, 3, 10, 99])
def test_a_whole_run_is_the_same_to_rounding(here: Path, tokens: Path, micro_batch: int):
    run(tokens, here / "auto" / "model", **WIDE)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "cut" / "model", runtime={"micro_batch_size": micro_batch}, **WIDE)
    assert_same_to_rounding(here / "cut", here / "auto")


def test_auto_is_the_batch_and_gives_its_bytes(here: Path, tokens: Path):
    run(tokens, here / "auto", **WIDE)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "five", runtime={"micro_batch_size": 5}, **WIDE)
    assert digest(here / "five") == digest(here / "auto")
    shutil.rmtree(here / ".resume")
    run(tokens, here / "two", runtime={"micro_batch_size": 2}, **WIDE)
    assert digest(here / "two") != digest(here / "auto"), "or micro_batch_size does nothing"


def test_it_may_change_in_the_middle(here: Path, tokens: Path, said: io.StringIO):
    run(tokens, here / "auto" / "model", **WIDE)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "one", epochs=1, runtime={"micro_batch_size": 2}, **WIDE)
    run(tokens, here / "cut" / "model", runtime={"micro_batch_size": 3}, **WIDE)
    assert "going on from step 2 of 4" in said.getvalue()
    assert_same_to_rounding(here / "cut", here / "auto")


def test_on_the_cpu_auto_takes_what_memory_should_hold(monkeypatch: pytest.MonkeyPatch):
    config = model_config()
    one = memory(config, sequences=1, precision="float32", optimizer="adamw")

    def with_room_for(sequences: float) -> int:
        free = psutil.virtual_memory()._replace(available=int(2 * sequences * (one.activations + one.logits)))
        monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
        return sequences_that_fit(config, 12, CPU.device)

    assert [with_room_for(n) for n in (100, 12.1, 11, 6.1, 5, 0.1)] == [12, 12, 6, 6, 3, 1]


def test_memory_that_runs_out_halves_it_and_changes_no_number(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch, said: io.StringIO
):
    run(tokens, here / "quiet", runtime={"micro_batch_size": 1}, **WIDE)
    shutil.rmtree(here / ".resume")
    with monkeypatch.context() as patch:
        tried = small_memory(patch, holds=1)
        run(tokens, here / "model", **WIDE)
    assert tried[:4] == [5, 2, 1, 1]
    assert max(tried[3:]) == 1, "once found it stays"
    assert digest(here / "model") == digest(here / "quiet"), "what was tried before left no trace"
    assert said.getvalue().count("out of memory; doing the step again with a micro-batch of 2") == 1
    assert said.getvalue().count("out of memory; doing the step again with a micro-batch of 1") == 1


def test_the_size_that_was_found_is_where_the_next_run_begins(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        small_memory(patch, holds=2)
        run(tokens, here / "one", epochs=1, **WIDE)
    (kept,) = here.glob(".resume/*/micro_batch.json")
    assert json.loads(kept.read_text())["sequences"] == 2
    tried = small_memory(monkeypatch, holds=99)
    run(tokens, here / "two", epochs=2, **WIDE)
    assert max(tried[:-3]) == 2
    tried.clear()
    run(tokens, here / "three", epochs=3, runtime={"micro_batch_size": 4}, **WIDE)
    assert max(tried) == 4, "another wish is tried anew"


def test_dropout_is_drawn_anew_where_a_step_is_done_again(here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch):
    dropout: dict[str, Any] = {"model": {"dropout": 0.3}}
    run(tokens, here / "quiet", runtime={"micro_batch_size": 2}, **WIDE, **dropout)
    shutil.rmtree(here / ".resume")
    small_memory(monkeypatch, holds=2)
    run(tokens, here / "model", **WIDE, **dropout)
    assert digest(here / "model") == digest(here / "quiet")


def test_not_even_one_sequence_asks_for_a_fresh_process_and_then_for_a_smaller_model(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    small_memory(monkeypatch, holds=0)
    with pytest.raises(StartAgain, match=r"from the last checkpoint in a fresh process with a micro-batch of 1"):
        run(tokens, here / "model", **WIDE)
    with pytest.raises(UserError) as error:
        run(tokens, here / "model", **WIDE)
    assert "with one sequence at a time: weights, gradients and optimizer need about 0.1 MB, a sequence 0.0" in str(
        error.value
    )
    for name in ("model.n_layer (2)", "model.n_embd (16)", "model.context_length (8)"):
        assert name in str(error.value)


def test_the_cpus_own_allocator_says_so():
    with pytest.raises(RuntimeError) as error:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(error.value)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
def test_a_process_with_too_little_memory_ends_well(here: Path):
    """The limit is the operating system's; the step needs some 400 MB, and 280 are there."""
    tokens = write_tokens(here / "tokens", sequences=8192)
    arguments: dict[str, Any] = {"model": {"context_length": 32}, "batch_size": 4096, "epochs": 2}
    (here / "quiet").mkdir()
    run(tokens, here / "quiet" / "model", **arguments)
    tight = start(here / "tight", tokens, room=280 << 20, **arguments)
    said = tight.communicate()[1]
    assert tight.returncode == 0, said
    assert "out of memory; doing the step again with a micro-batch of 2048" in said
    assert_same_to_rounding(here / "tight", here / "quiet")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows cannot replace a process")
def test_an_update_that_ran_out_of_memory_is_undone_by_a_fresh_process(here: Path, tokens: Path):
    """Weights may have moved in part, so the same process number starts again from the last checkpoint."""
    run(tokens, here / "quiet", runtime={"micro_batch_size": 2})
    broken = start(here / "broken", tokens, update_holds=2)
    said = broken.communicate()[1]
    assert broken.returncode == 0, said
    assert said.count("in a fresh process with a micro-batch of 2") == 1
    assert digest(here / "broken" / "model") == digest(here / "quiet")


def test_a_fresh_process_is_still_in_the_session_whose_minutes_are_limited(monkeypatch: pytest.MonkeyPatch):
    now = 1000.0
    monkeypatch.setenv(interrupt.BEGAN, "to be restored")
    monkeypatch.delenv(interrupt.BEGAN)
    monkeypatch.setattr(interrupt.time, "monotonic", lambda: now)
    monkeypatch.setattr(os, "execv", lambda *_: None)

    def run_out() -> NoReturn:
        nonlocal now
        now += 90
        raise StartAgain("out of memory")

    launch(run_out, runtime=runtime_params())
    assert interrupt.Interrupt(max_minutes=1).reason == "stopped by runtime.max_minutes (1)"
    assert interrupt.Interrupt(max_minutes=2).reason is None
