"""The micro-batch changes memory and no number, and shrinks where memory runs out."""

import io
import json
import math
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from tests.training.fork_server import ForkServer
from tests.training.tiny import (
    CPU,
    assert_same_to_rounding,
    digest,
    run,
    small_memory,
    train_params,
    workload,
    write_tokens,
)
from tokenmill.core.errors import UserError
from tokenmill.model.device import Compute, is_out_of_memory
from tokenmill.training import memory as module
from tokenmill.training.distributed import Group
from tokenmill.training.memory import WHOLE_GRADIENTS_SHARE, FittingMicroBatch, first_micro_batch
from tokenmill.training.size import USABLE_MEMORY, memory

WIDE: dict[str, Any] = {"batch_size": 5, "gradient_accumulation_steps": 2, "optimizer": "adamw"}


@pytest.mark.parametrize("micro_batch", [1, 3, 10, 99])
def test_no_micro_batch_changes_a_run_beyond_rounding(here: Path, tokens: Path, micro_batch: int):
    run(tokens, here / "auto" / "model", **WIDE)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "cut" / "model", runtime={"micro_batch_size": micro_batch}, **WIDE)
    assert_same_to_rounding(here / "cut", here / "auto")


def test_auto_is_the_batch_size_and_gives_its_bytes(here: Path, tokens: Path):
    run(tokens, here / "auto", **WIDE)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "five", runtime={"micro_batch_size": 5}, **WIDE)
    assert digest(here / "five") == digest(here / "auto")
    shutil.rmtree(here / ".resume")
    run(tokens, here / "two", runtime={"micro_batch_size": 2}, **WIDE)
    assert digest(here / "two") != digest(here / "auto"), "or micro_batch_size does nothing"


def test_a_micro_batch_may_change_between_two_sessions(here: Path, tokens: Path, said: io.StringIO):
    run(tokens, here / "auto" / "model", **WIDE)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "one", epochs=1, runtime={"micro_batch_size": 2}, **WIDE)
    run(tokens, here / "cut" / "model", runtime={"micro_batch_size": 3}, **WIDE)
    assert "continuing from step 2 of 4" in said.getvalue()
    assert_same_to_rounding(here / "cut", here / "auto")


def test_auto_on_a_cpu_is_what_free_memory_holds(monkeypatch: pytest.MonkeyPatch):
    work = workload(train_params(batch_size=12), steps_per_epoch=1)
    one = memory(work, sequences=1, precision=torch.float32, on_cpu=True)

    def with_room_for(sequences: float) -> int:
        free = psutil.virtual_memory()._replace(
            available=int(2 * sequences * (one.activations + one.logits))
        )
        monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
        return first_micro_batch("auto", work, CPU)

    assert [with_room_for(n) for n in (100, 12.1, 11, 6.1, 5, 0.1)] == [12, 12, 6, 6, 3, 1]


def test_auto_on_a_gpu_is_what_its_whole_memory_should_hold(monkeypatch: pytest.MonkeyPatch):
    """Free memory does not count, so that a run that continues decides the same."""
    compute = Compute(torch.device("cuda"), torch.bfloat16)
    work = workload(train_params(batch_size=12, optimizer="muon"), steps_per_epoch=1)
    how: dict[str, Any] = {"precision": torch.bfloat16, "compiled": True}

    def with_room_for(sequences: int) -> int:
        total = math.ceil(memory(work, sequences=sequences, **how).total / USABLE_MEMORY)
        monkeypatch.setattr(module, "device_memory", lambda _: (0, total))
        return first_micro_batch("auto", work, compute)

    assert [with_room_for(n) for n in (100, 12, 11, 6, 5, 1)] == [12, 12, 6, 6, 3, 1]
    monkeypatch.setattr(module, "device_memory", lambda _: (0, 1))
    assert first_micro_batch("auto", work, compute) == 1


def test_out_of_memory_halves_it_and_changes_no_number(
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


def test_the_next_run_starts_with_the_size_that_fitted(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        small_memory(patch, holds=2)
        run(tokens, here / "one", epochs=1, **WIDE)
    (kept,) = here.glob(".resume/*/micro_batch-0.json")
    assert json.loads(kept.read_text())["sequences"] == 2
    tried = small_memory(monkeypatch, holds=99)
    run(tokens, here / "two", epochs=2, **WIDE)
    assert max(tried[:-3]) == 2
    tried.clear()
    run(tokens, here / "three", epochs=3, runtime={"micro_batch_size": 4}, **WIDE)
    assert max(tried) == 4, "another wish is tried anew"


def test_a_repeated_step_draws_the_same_dropout(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    dropout: dict[str, Any] = {"model": {"dropout": 0.3}}
    run(tokens, here / "quiet", runtime={"micro_batch_size": 2}, **WIDE, **dropout)
    shutil.rmtree(here / ".resume")
    small_memory(monkeypatch, holds=2)
    run(tokens, here / "model", **WIDE, **dropout)
    assert digest(here / "model") == digest(here / "quiet")


def test_a_single_sequence_that_does_not_fit_ends_training(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    """The first time a fresh process might still have room for it; the second time the model is too
    large."""
    small_memory(monkeypatch, holds=0)
    with pytest.raises(UserError, match="micro-batch of 1"):
        run(tokens, here / "model", **WIDE)
    with pytest.raises(UserError, match="with one sequence at a time") as error:
        run(tokens, here / "model", **WIDE)
    for name in ("model.n_layer (2)", "model.n_embd (16)", "model.context_length (8)"):
        assert name in str(error.value)


def test_the_cpu_allocators_error_means_out_of_memory():
    with pytest.raises(RuntimeError) as error:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(error.value)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
def test_a_process_with_too_little_memory_halves_and_ends(here: Path, fork_server: ForkServer):
    """The limit is the operating system's; the step needs some 320 MB, and 192 are there."""
    tokens = write_tokens(here / "tokens", sequences=8192)
    arguments: dict[str, Any] = {"model": {"context_length": 32}, "batch_size": 4096, "epochs": 2}
    (here / "quiet").mkdir()
    run(tokens, here / "quiet" / "model", **arguments)
    ends: list[tuple[int, str]] = []
    # One process may have to leave it to the next
    while len(ends) < 4 and not (ends and ends[-1][0] == 0):
        tight = fork_server.start(here / "tight", tokens, room=192 << 20, **arguments)
        ends.append((tight.wait(), tight.said))
    assert ends[-1][0] == 0, ends
    assert "out of memory" in ends[0][1]
    (kept,) = (here / "tight").glob(".resume/*/micro_batch-0.json")
    assert 128 <= json.loads(kept.read_text())["sequences"] <= 2048
    assert_same_to_rounding(here / "tight", here / "quiet")


def test_memory_out_in_an_update_ends_with_what_to_type(
    here: Path, tokens: Path, fork_server: ForkServer
):
    """Weights may have moved in part, so the next process continues from the last checkpoint."""
    run(tokens, here / "quiet", runtime={"micro_batch_size": 2})
    broken = fork_server.start(here / "broken", tokens, update_holds=2)
    assert broken.wait() == 1
    assert broken.said.splitlines()[-1].startswith(
        "error: out of memory; remembered a micro-batch of 2"
    )
    again = fork_server.start(here / "broken", tokens, update_holds=2)
    assert again.wait() == 0, again.said
    assert digest(here / "broken" / "model") == digest(here / "quiet")


def test_memory_may_run_out_in_two_processes_at_once(here: Path, monkeypatch: pytest.MonkeyPatch):
    """The second writes its size between the first one's writing and renaming."""
    monkeypatch.setattr(Group, "all_reduce_min", lambda _, value: value)
    work = workload(train_params(batch_size=8), steps_per_epoch=1)

    def of_rank(rank: int) -> FittingMicroBatch:
        return FittingMicroBatch(here, 4, work=work, compute=CPU, group=Group(rank=rank, size=2))

    first = of_rank(0)
    second = of_rank(1)
    real = os.fsync

    def give_up_meanwhile(descriptor: int) -> None:
        real(descriptor)
        monkeypatch.setattr(os, "fsync", real)
        with pytest.raises(UserError):
            second.give_up()

    monkeypatch.setattr(os, "fsync", give_up_meanwhile)
    with pytest.raises(UserError):
        first.give_up()
    assert [of_rank(0).sequences, of_rank(1).sequences] == [2, 2]


@pytest.mark.parametrize(("bytes_", "fits"), [(0, False), (1, True)])
def test_whole_gradients_fit_beside_all_else(
    here: Path, bytes_: int, fits: bool, monkeypatch: pytest.MonkeyPatch
):
    """Two processes share the machine; each has all gradients and half of the weights and the
    optimizer's state."""
    work = workload(train_params(batch_size=4, average_power=1.0), steps_per_epoch=1)
    need = memory(work, sequences=2, precision=torch.float32, on_cpu=True)
    taken = (need.weights + need.optimizer) // 2 + need.gradients + need.activations + need.logits
    total = int(2 * taken / WHOLE_GRADIENTS_SHARE) + 2 * bytes_
    monkeypatch.setattr(
        "psutil.virtual_memory", lambda: SimpleNamespace(available=0, total=total - 1)
    )
    monkeypatch.setattr(Group, "all_reduce_min", lambda _, value: value)
    group = Group(size=2, shards=True, on_this_machine=2)
    micro_batch = FittingMicroBatch(here, 2, work=work, compute=CPU, group=group)
    assert micro_batch.holds_whole_gradients() is fits
