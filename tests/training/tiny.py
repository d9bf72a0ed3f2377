"""Trainings of a few hundred parameters: parameters, tokens on disk, and a whole run."""

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from tokenmill.core.files import write_json
from tokenmill.formats.token_file import (
    Split,
)
from tokenmill.model.config import ModelConfig, ModelParams
from tokenmill.model.device import Compute
from tokenmill.model.huggingface import load_model
from tokenmill.model.manifest import MANIFEST, Manifest, read_manifest
from tokenmill.training import step
from tokenmill.training.history import RunState
from tokenmill.training.job import Job, training_job
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.run import run_job
from tokenmill.training.schedule import Workload

if TYPE_CHECKING:
    import pytest

CONTEXT = 8
VOCABULARY = 29
CPU = Compute(device=torch.device("cpu"), precision=torch.float32)

MODEL = {
    "architecture": "modern",
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 16,
    "context_length": CONTEXT,
    "dropout": 0.0,
}
SCHEDULE = {
    "type": "constant",
    "warmup_steps": 2,
    "constant_steps": 3,
    "power": 0.7,
    "decay_fraction": 0.25,
    "final_fraction": 0.1,
    "horizon_epochs": None,
}
TRAIN = {
    "epochs": 2,
    "batch_size": 4,
    "gradient_accumulation_steps": 1,
    "learning_rate": 0.01,
    "optimizer": "adamw",
    "weight_decay": 0.1,
    "beta1": 0.9,
    "beta2": 0.95,
    "gradient_clip": 1.0,
    "schedule": SCHEDULE,
    "average_power": None,
    "seed": 3,
    "precision": "float32",
    "validation_bytes": None,
    "log_every_steps": 3,
    "validate_every_steps": None,
    "early_stopping": None,
    "target_loss": None,
}
RUNTIME = {
    "device": "cpu",
    "token_placement": "mmap",
    "compile": "off",
    "processes": 1,
    "parallel": "ddp",
    "micro_batch_size": "auto",
    "max_minutes": None,
    "checkpoint": {
        "every_seconds": None,
        "every_steps": 3,
        "keep": 2,
        "keep_runs": 4,
        "mirror": None,
    },
    "cost": {"price_per_hour": None, "currency": "EUR", "units_per_hour": None},
}


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`values` with `changes`; a dictionary inside is merged too."""
    nested = {k: merged(values[k], v) if isinstance(v, dict) else v for k, v in changes.items()}
    return values | nested


def model_config(**changes: Any) -> ModelConfig:
    return ModelConfig.model_validate(merged(MODEL | {"vocab_size": VOCABULARY}, changes))


def train_params(**changes: Any) -> TrainParams:
    return TrainParams.model_validate(merged(TRAIN, changes))


def workload(train: TrainParams, *, steps_per_epoch: int) -> Workload:
    """A run with so many steps in an epoch."""
    sequences = steps_per_epoch * train.batch_size * train.gradient_accumulation_steps
    return Workload(model_config(), train, tokens=sequences * CONTEXT + 1)


def text_workload(
    *, tokens: int, context_length: int, per_step: int, seed: int, **changes: Any
) -> Workload:
    """A run on a text of so many tokens."""
    config = model_config(context_length=context_length)
    return Workload(config, train_params(batch_size=per_step, seed=seed), tokens, **changes)


def sequences_in(work: Workload, epoch: int) -> list[int]:
    """The sequences of an epoch, in the order of its steps."""
    steps = range(epoch * work.steps_per_epoch, (epoch + 1) * work.steps_per_epoch)
    return [int(sequence) for step in steps for sequence in work.sequences_at(step)]


def runtime_params(**changes: Any) -> RuntimeParams:
    return RuntimeParams.model_validate(merged(RUNTIME, changes))


def write_tokens(
    folder: Path,
    *,
    sequences: int,
    seed: int = 0,
    val: int = 7,
    sources: tuple[str, str] = ("a.txt", "a.txt"),
) -> Path:
    """A folder as `unpack` leaves it, with so many training and validation sequences of text that
    can be learned a little, and three tokens more."""
    from tests.tokens import packing  # noqa: PLC0415 (half a second that no trainer needs)

    draws = np.random.default_rng(seed)
    counts: dict[Split, int] = {"train": sequences, "val": val}
    ids: dict[Split, np.ndarray] = {}
    for split, count in counts.items():
        steps = draws.choice([1, 1, 1, 4], size=count * CONTEXT + 3)
        ids[split] = np.cumsum(steps) % VOCABULARY
    packing.write_tokens(folder, ids, bytes_per_token=3, sources=sources, vocab_size=VOCABULARY)
    return folder


class Outcome(NamedTuple):
    """What a finished run has written and counted."""

    manifest: Manifest
    state: RunState


def run(
    tokens: Path,
    output: Path,
    *,
    model: dict[str, Any] | None = None,
    live: Path | None = None,
    start: Path | str | None = None,
    mixture: dict[str, float] | None = None,
    **changes: Any,
) -> Outcome:
    """Train in this process, with checkpoints in `.resume` of the current folder."""
    job = training_job(
        ModelParams.model_validate(merged(MODEL, model or {})),
        train_params(**{k: v for k, v in changes.items() if k != "runtime"}),
        tokens,
        tokens.parent / "tokenizer.json",
        start=Path(start) if start else None,
        mixture=mixture,
    )
    return run_on(job, runtime_params(**changes.get("runtime", {})), output, live=live)


def run_on(job: Job, runtime: RuntimeParams, output: Path, *, live: Path | None = None) -> Outcome:
    """Train a job in this process."""
    state = run_job(job, runtime=runtime, output=output, metrics=output.parent, live=live)
    if state is None:
        assert "RANK" in os.environ
        return None  # type: ignore[return-value] (of several processes one tells)
    return Outcome(read_manifest(output), state)


def digest(folder: Path) -> dict[str, str]:
    """The hash of every file: weights, optimizer, history."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def checkpoints(root: Path) -> list[int]:
    """The steps of all checkpoints."""
    return sorted(int(path.name[5:]) for path in root.glob(".resume/*/step-*"))


def replace_in_checkpoint(path: Path, content: bytes) -> None:
    """Replace a file of a checkpoint, so that the manifest beside it agrees."""
    path.unlink()  # others may have hard links to it
    path.write_bytes(content)
    manifest = path.with_name(MANIFEST)
    hashes = json.loads(manifest.read_text()) | {path.name: hashlib.sha256(content).hexdigest()}
    write_json(manifest, hashes)


def history(root: Path) -> list[float]:
    """Every number that the finished run in `root` tells: losses and gradient norms."""
    state = json.loads(max((root / "model" / "resume").glob("*/state.json")).read_text())["state"]
    steps = [row[key] for row in state["steps"] for key in ("loss", "gradient_norm")]
    return steps + [row[key] for row in state["epochs"] for key in ("train_loss", "val_loss")]


def assert_same_to_rounding(ours: Path, theirs: Path) -> None:
    """Two finished runs, in `model` of these folders, told the same and learned the same
    weights."""
    import pytest  # noqa: PLC0415 (a third of a second that no trainer needs)

    assert history(ours) == pytest.approx(history(theirs), rel=2e-3)
    names = sorted(path.relative_to(theirs) for path in theirs.glob("model/epoch-*"))
    assert names
    for name in names:
        a, b = (load_model(root / name) for root in (ours, theirs))
        for one, other in zip(a.parameters(), b.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=2e-4)


def small_memory(monkeypatch: "pytest.MonkeyPatch", *, holds: int) -> list[int]:
    """A device that runs out of memory with more than so many sequences; gives the micro-batches
    that were tried."""
    tried: list[int] = []
    real = step.loss_on

    def loss_or_nothing(model: Any, sequences: Any, index: Any, **how: Any) -> torch.Tensor:
        tried.append(len(index))
        loss = real(model, sequences, index, **how)
        if len(index) > holds:
            loss.backward()  # some gradients are there already when memory runs out
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return loss

    monkeypatch.setattr(step, "loss_on", loss_or_nothing)
    return tried
