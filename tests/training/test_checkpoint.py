"""Checkpoints on disk: exact, left out if damaged, pruned, and written by one process at a time."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch
from filelock import FileLock, Timeout

from tests.imports import ROOT
from tests.training.tiny import CPU, digest, model_config, replace_in_checkpoint, train_params
from tokenmill.core.errors import UserError
from tokenmill.core.files import sha256_of
from tokenmill.model.gpt import GPT, build
from tokenmill.model.manifest import FORMAT, MANIFEST, WEIGHTS, Manifest
from tokenmill.stage import WAYS_OUT, describe
from tokenmill.training.checkpoints import store as checkpoint_module
from tokenmill.training.checkpoints.store import (
    RESUME,
    STATE,
    CheckpointStore,
    export_model,
    prune_runs,
)
from tokenmill.training.history import EpochRow, RunState
from tokenmill.training.optimizer import Optimizer

RESUMABLE = {
    "epochs": 2,
    "schedule": {"horizon_epochs": None},
    "validate_every_steps": 5,
    "early_stopping": 3,
    "target_loss": None,
}


def trained(seed: int = 0) -> tuple[GPT, Optimizer]:
    model = build(model_config(), seed=seed)
    optimizer = Optimizer(model, train_params(optimizer="muon"), CPU)
    optimizer.backward(model(torch.arange(8)[None]).square().mean())
    optimizer.set_rates(0.01)
    optimizer.step(torch.ones(()))
    return model, optimizer


def row(epoch: int) -> EpochRow:
    return EpochRow(epoch, 10 * epoch, 80 * epoch, 0.01, 1 / 3, 2 / 3, 1.9, 0.3)


def filled(folder: Path, *steps: int, seed: int = 0) -> CheckpointStore:
    """A store with a checkpoint at each of these steps and an epoch every ten."""
    store = CheckpointStore(folder)
    model, optimizer = trained(seed)
    weights = [store.save_epoch(n, model)[WEIGHTS] for n in range(1, max(steps) // 10 + 1)]
    for step in steps:
        done = step // 10
        state = RunState(
            step=step, epochs=[row(n + 1) for n in range(done)], epoch_weights=weights[:done]
        )
        store.save(state, model, optimizer.state(), RESUMABLE)
    return store


def found(store: CheckpointStore) -> tuple[list[int], list[str]]:
    said: list[str] = []
    return [checkpoint.step for checkpoint in store.checkpoints(said.append)], said


def test_loaded_is_what_was_saved(tmp_path: Path):
    store = CheckpointStore(tmp_path / "run")
    model, optimizer = trained()
    weights = [store.save_epoch(1, model)[WEIGHTS]]
    state = RunState(step=12, tokens=96, epochs=[row(1)], epoch_weights=weights)
    state.epoch_loss.add(1 / 3, 4)
    store.save(state, model, optimizer.state(), RESUMABLE)
    (checkpoint,) = store.checkpoints(print)
    assert (checkpoint.state, checkpoint.step) == (state, 12)
    assert checkpoint.resumable.model_dump() == RESUMABLE
    other, _ = trained(seed=1)
    loaded = checkpoint.load(other)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert loaded.keys() == optimizer.state().keys()
    assert all(torch.equal(loaded[name], value) for name, value in optimizer.state().items())


def test_newest_checkpoint_comes_first(tmp_path: Path):
    store = filled(tmp_path / "run", 9, 100, 20)
    assert found(store) == ([100, 20, 9], [])
    assert CheckpointStore(tmp_path / "other").steps() == []


def test_newest_upto_looks_at_earlier_steps_only(tmp_path: Path):
    store = filled(tmp_path / "run", 5, 10, 25)
    assert store.newest_upto(24) == store.checkpoint_folder(10)
    assert store.newest_upto(4) is None


def test_manifest_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names: list[str] = []
    write = checkpoint_module.write_json

    def watch(path: Path, value: object) -> None:
        if path.name == MANIFEST:
            names.extend(sorted(p.name for p in path.parent.iterdir()))
        write(path, value)

    monkeypatch.setattr(checkpoint_module, "write_json", watch)
    filled(tmp_path / "run", 5)
    assert names == ["config.json", "model.safetensors", "optimizer.safetensors", "state.json"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def change_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def at(folder: Path, place: str) -> Path:
    """A place in a run's folder; a star stands for the hash in the name of an epoch."""
    return next(folder.glob(place)) if "*" in place else folder / place


STEP_20 = "step-000000020"
DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "cut weights": (cut, f"{STEP_20}/model.safetensors", "model.safetensors changed"),
    "changed weights": (change_a_byte, f"{STEP_20}/model.safetensors", "model.safetensors changed"),
    "changed optimizer": (
        change_a_byte,
        f"{STEP_20}/optimizer.safetensors",
        "optimizer.safetensors changed",
    ),
    "changed state": (change_a_byte, f"{STEP_20}/state.json", "state.json changed"),
    "changed configuration": (change_a_byte, f"{STEP_20}/config.json", "config.json changed"),
    "missing state": (Path.unlink, f"{STEP_20}/state.json", "state.json changed"),
    "missing manifest": (Path.unlink, f"{STEP_20}/manifest.json", "manifest.json is missing"),
    "cut manifest": (cut, f"{STEP_20}/manifest.json", ""),
    "additional file": (lambda p: p.write_text("x"), f"{STEP_20}/another", "another changed"),
    "missing epoch": (
        Path.unlink,
        "epochs/epoch-2-*/model.safetensors",
        "weights of epoch-2 are gone",
    ),
    "changed epoch": (change_a_byte, "epochs/epoch-2-*/model.safetensors", "weights of epoch-2"),
}


@pytest.mark.parametrize("damage", sorted(DAMAGES.keys() - {"cut manifest"}))
def test_damaged_checkpoint_is_left_out_and_said(damage: str, tmp_path: Path):
    store = filled(tmp_path / "run", 10, 20)
    do, where, expected = DAMAGES[damage]
    do(at(tmp_path / "run", where))
    steps, said = found(store)
    assert steps == [10]
    assert len(said) == 1
    assert STEP_20 in said[0]
    assert expected in said[0]
    assert "using the one before" in said[0]


@pytest.mark.parametrize(
    "change", [{"step": 10}, {"step": -1}, {"epochs": []}, {"epoch_weights": []}]
)
def test_state_that_does_not_fit_its_checkpoint_is_damage(
    change: dict[str, object], tmp_path: Path
):
    store = filled(tmp_path / "run", 10, 20)
    path = store.checkpoint_folder(20) / STATE
    saved = json.loads(path.read_text())
    saved["state"] |= change
    replace_in_checkpoint(path, json.dumps(saved).encode())
    steps, said = found(store)
    assert (steps, len(said)) == ([10], 1)
    assert STEP_20 in said[0]


def test_output_without_a_damaged_checkpoint_is_said(tmp_path: Path):
    store = filled(tmp_path / "run", 10, 20)
    do, where, _ = DAMAGES["changed weights"]
    do(at(tmp_path / "run", where))
    manifest = Manifest.model_validate(
        {
            "format_version": FORMAT,
            "fingerprint": "f",
            "model": trained()[0].config,
            "train": train_params().model_dump(),
            "parameters": 1,
            "epochs": 2,
            "weights": [sha256 for _, sha256 in sorted(store.named_weights())],
            "tokenizer_sha256": "t",
        }
    )
    said: list[str] = []
    export_model(store, manifest, tmp_path / "model", steps={10, 20}, say=said.append)
    assert [path.name for path in (tmp_path / "model" / RESUME).iterdir()] == ["step-000000010"]
    assert len(said) == 1
    assert STEP_20 in said[0]


def test_weights_that_cannot_be_read_are_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = filled(tmp_path / "run", 10, 20)
    weights = at(store.epochs, "epoch-2-*/model.safetensors")

    def readable(path: Path, *, follow: bool = True) -> str:
        if path == weights:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return sha256_of(path, follow=follow)

    monkeypatch.setattr(checkpoint_module, "sha256_of", readable)
    steps, said = found(store)
    assert steps == [10]
    assert str(weights) in said[0]


def test_cut_manifest_is_damage(tmp_path: Path):
    store = filled(tmp_path / "run", 10, 20)
    path = tmp_path / "run" / STEP_20 / MANIFEST
    path.write_bytes(path.read_bytes()[:-10])
    assert found(store)[0] == [10]


def test_weights_of_another_run_stand_beside_these(tmp_path: Path):
    store = filled(tmp_path / "run", 10, 20)
    # A run over fewer epochs comes by here with another learning rate
    store.save_epoch(2, trained(seed=1)[0])
    assert found(store) == ([20, 10], [])


def test_pruning_removes_weights_that_no_checkpoint_names(tmp_path: Path):
    store = filled(tmp_path / "run", 10, 20)
    state = next(store.checkpoints(print)).state
    store.save_epoch(2, trained(seed=1)[0])
    store.prune(state, newest=2, also=set())
    assert found(store) == ([20, 10], [])
    assert len([*store.epochs.iterdir()]) == 2
    shutil.rmtree(store.checkpoint_folder(20))
    store.prune(replace(state, epoch_weights=["0" * 64] * 2), newest=2, also=set())
    assert [path.name[:8] for path in store.epochs.iterdir()] == ["epoch-1-"]


def test_pruning_leaves_weights_of_a_later_epoch_alone(tmp_path: Path):
    filled(tmp_path / "run", 10, 20)
    # A process was killed before a checkpoint named them; the next one writes the same
    CheckpointStore(tmp_path / "run").save_epoch(3, trained(seed=2)[0])
    store = CheckpointStore(tmp_path / "run")
    store.prune(next(store.checkpoints(print)).state, newest=2, also=set())
    assert at(store.epochs, "epoch-3-*").exists()


def test_half_a_checkpoint_does_not_exist(tmp_path: Path):
    store = filled(tmp_path / "run", 10)
    (tmp_path / "run" / ".step-000000020.tmp").mkdir()
    assert found(store) == ([10], [])


def test_lock_clears_what_a_killed_process_left(tmp_path: Path):
    store = filled(tmp_path / "run", 10)
    (tmp_path / "run" / ".step-000000020.tmp" / ".inner.tmp").mkdir(parents=True)
    (at(store.epochs, "epoch-1-*") / ".model.safetensors.tmp").write_text("half")
    (store.epochs / ".epoch.tmp").mkdir()  # whole, but not yet named by its hash
    with store.lock(print):
        pass
    assert not list((tmp_path / "run").rglob(".*"))
    assert found(store) == ([10], [])


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EROFS])
def test_a_lock_that_the_file_system_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    fcntl = pytest.importorskip("fcntl", reason="Windows locks otherwise")
    refuses = mock.Mock(side_effect=OSError(number, os.strerror(number)))
    monkeypatch.setattr(fcntl, "flock", refuses)
    with (
        pytest.raises(OSError, match="lock") as refused,
        CheckpointStore(tmp_path / "run").lock(print),
    ):
        pass
    assert refused.value.filename == str(tmp_path / "run" / "lock")
    assert WAYS_OUT[number] in describe(refused.value)


def kept(store: CheckpointStore) -> list[int]:
    return sorted(int(path.name[5:]) for path in store.folder.glob("step-*"))


def test_pruning_keeps_the_newest_and_the_named(tmp_path: Path):
    store = filled(tmp_path / "run", 1, 2, 3, 4, 5)
    store.prune(RunState(step=5), newest=2, also={2, 77})
    assert kept(store) == [2, 4, 5]


def test_pruning_ignores_later_checkpoints(tmp_path: Path):
    store = filled(tmp_path / "run", 1, 2, 3, 8, 9)
    store.prune(RunState(step=3), newest=2, also=set())
    assert kept(store) == [2, 3, 8, 9]


def test_pruning_runs_keeps_one_in_training(tmp_path: Path):
    """And the last one, although the clock was set back meanwhile."""
    runs = [CheckpointStore(tmp_path / name) for name in "abcd"]
    for run in runs:
        with run.lock(print):
            (run.folder / "timing.csv").write_text(run.folder.name)
    os.utime(tmp_path / "b", (1 << 33, 1 << 33))
    with FileLock(tmp_path / "a" / "lock"):
        prune_runs(tmp_path, keep=1, last="d")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b.timing.csv", "c.timing.csv", "d"}


IN_A_RUN = [
    "",
    "lock",
    "holder",
    "epochs",
    "epochs/epoch-1-*",
    "epochs/epoch-1-*/model.safetensors",
    "step-000000010",
    "step-000000010/state.json",
    "timing.csv",
    "micro_batch-0.json",
]


def replaced_by_link(folder: Path, place: str, outside: Path) -> None:
    """Move what is at a place of a run to `outside`, and put a link there."""
    path = at(folder, place)
    if path.exists():
        path.rename(outside)
    else:
        outside.write_text("kept")
    path.symlink_to(outside, target_is_directory=outside.is_dir())


def everything(outside: Path) -> object:
    return digest(outside) if outside.is_dir() else outside.read_bytes()


@pytest.mark.parametrize("place", IN_A_RUN)
def test_no_link_in_a_run_is_followed(place: str, tmp_path: Path):
    """Neither when a run begins nor by what it reads, writes and removes later."""
    store = filled(tmp_path / "runs/run", 5, 10)
    outside = tmp_path / "outside"
    replaced_by_link(store.folder, place, outside)
    before = everything(outside)
    with pytest.raises(UserError, match="is a link"), store.lock(print):
        pass
    used, _ = found(store)
    if place.startswith(("step", "epochs")):
        assert used == [5] or place == "epochs"
    store.prune(RunState(step=20), newest=1, also=set())
    filled(tmp_path / "runs/newer", 5)
    prune_runs(tmp_path / "runs", keep=1, last="newer")
    assert everything(outside) == before


def test_a_link_that_comes_later_is_replaced_by_what_is_written(tmp_path: Path):
    store = filled(tmp_path / "run", 5, 10)
    step = store.checkpoint_folder(10)
    replaced_by_link(store.folder, step.name, tmp_path / "outside")
    before = everything(tmp_path / "outside")
    filled(store.folder, 10)
    assert not step.is_symlink()
    assert found(store)[0] == [10, 5]
    assert everything(tmp_path / "outside") == before


HOLDER = """
import sys, time
from pathlib import Path
from tokenmill.training.checkpoints.store import CheckpointStore
with CheckpointStore(Path(sys.argv[1])).lock(print):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_process_waits_for_the_first(tmp_path: Path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT / "src")},
        text=True,
    )
    assert holder.stdin
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    said: list[str] = []

    def end_the_holder(sentence: str) -> None:
        with pytest.raises(Timeout):
            FileLock(tmp_path / "run" / "lock").acquire(timeout=0)
        said.append(sentence)
        assert holder.stdin
        holder.stdin.close()

    with CheckpointStore(tmp_path / "run").lock(end_the_holder):
        holder.stdin.close()
        holder.wait(timeout=30)
        with pytest.raises(Timeout):  # it is ours now
            FileLock(tmp_path / "run" / "lock").acquire(timeout=0)
    holder.stdout.close()
    assert len(said) == 1
    assert f"process {holder.pid} is training this configuration" in said[0]
