"""What makes two trainings the same: all that changes their numbers, but how long they go on.

Names in `.resume/`, the place for checkpoints, for those who look into it without loading PyTorch.

Checkpoints of one configuration: `.resume/<fingerprint>/`, shared by every way that DVC runs a stage.

    epochs/epoch-3/          weights as they stood at the end of an epoch
    micro_batch.json         how many sequences at a time memory held, where it once ran out
    step-000001200/          everything needed to go on: weights, optimizer, state; its manifest is written last
    lock                     held by the one process that trains this configuration

A checkpoint appears by rename, holds the hash of each of its files, and is read only after they agree. Nothing in it
is a pickle. DVC keeps a copy of the folder's essence in `models/gpt/`, so that another machine can go on too.

The output of training, `models/gpt/`: what evaluation, people and the next training need.

manifest.json            configuration, fingerprint, epochs
epoch-1/ ... epoch-N/    weights at the end of every epoch, as transformers loads them
resume/step-.../         the last checkpoint (and, with a decay at the end, the one before it)
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from filelock import FileLock, Timeout
from torch import Tensor

from tokenmill.core.errors import UserError
from tokenmill.core.files import read_json, sha256_of, write_beside, write_directory, write_json
from tokenmill.core.token_file import SPLITS, TokenMetadata
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import WEIGHTS, load_weights, save_weights
from tokenmill.model.manifest import MANIFEST, Manifest
from tokenmill.training.history import RunState
from tokenmill.training.params import TrainParams

NUMERICS_VERSION = 7
"""Raised whenever a change of this code changes what a step computes; then no old checkpoint is continued."""


RESUMABLE_KEYS: dict[str, Any] = {"epochs": True, "schedule": {"horizon_epochs"}}
"""What a run may change and still go on from a checkpoint; `resume.find_resume_point` says from which one."""


def fingerprint(model: ModelConfig, train: TrainParams, tokens: TokenMetadata) -> str:
    """Sixteen hexadecimal digits that two runs share when one can go on where the other stopped."""
    parameters = train.model_dump(exclude=RESUMABLE_KEYS)
    # The parameter's first name: runs from before it was renamed keep their fingerprint and so their checkpoints.
    parameters["validation_windows"] = parameters.pop("validation_sequences")
    content = {
        "numerics": NUMERICS_VERSION,
        "model": model.model_dump(),
        "train": parameters,
        "tokens": {name: tokens.split(name).sha256 for name in SPLITS},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


RESUME_FOLDER = ".resume"


STEP = "step-"


def resume_root() -> Path:
    """The one place for checkpoints of all the ways DVC runs a stage: DVC_ROOT is the main repository in each."""
    return Path(os.environ.get("DVC_ROOT", ".")) / RESUME_FOLDER


def checkpoint_name(step: int) -> str:
    """The folder of a step's checkpoint; names sort as steps do."""
    return f"{STEP}{step:09d}"


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps that a configuration's folder has checkpoints of, whole or not, in order."""
    return sorted(int(path.name.removeprefix(STEP)) for path in folder.glob(f"{STEP}*"))


OPTIMIZER, STATE = "optimizer.safetensors", "state.json"


MICRO_BATCH = "micro_batch.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk whose files were found whole."""

    folder: Path
    state: RunState
    horizon: dict[str, Any]
    """The parameters that the run may have changed since (see `fingerprint.RESUMABLE_KEYS`), as they were."""

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return self.state.step

    def load(self, model: GPT) -> dict[str, Tensor]:
        """Put the weights into `model`; give back the optimizer's state."""
        load_weights(model, self.folder)
        state = safetensors.torch.load_file(self.folder / OPTIMIZER)
        return {name: tensor.clone() for name, tensor in state.items()}  # not mapped: the file may be pruned


class CheckpointStore:
    """The checkpoints and epochs of one configuration."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.epochs = folder / "epochs"

    @contextlib.contextmanager
    def lock(self, say: Callable[[str], None]) -> Iterator[None]:
        """Be the only process that trains this configuration; wait for another to end, and say so."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock, holder = FileLock(self.folder / "lock"), self.folder / "holder"
        try:
            lock.acquire(timeout=0)
        except Timeout:
            who = holder.read_text() if holder.exists() else "unknown"
            say(f"process {who} is training this configuration; waiting for it to end, then going on from there")
            lock.acquire()
        try:
            holder.write_text(str(os.getpid()))
            os.utime(self.folder)
            self._clear_leftovers()
            yield
        finally:
            lock.release()

    def _clear_leftovers(self) -> None:
        """Remove what a killed process had begun to write."""
        for leftover in list(self.folder.rglob(".*.tmp")):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink(missing_ok=True)

    def checkpoint_folder(self, step: int) -> Path:
        """Where the checkpoint of a step is, or would be."""
        return self.folder / checkpoint_name(step)

    def epoch_folder(self, epoch: int) -> Path:
        """Where the weights of an epoch's end are, or would be."""
        return self.epochs / f"epoch-{epoch}"

    def steps(self) -> list[int]:
        """The steps that there are checkpoints of, whole or not, in order."""
        return checkpoint_steps(self.folder)

    def save(self, state: RunState, model: GPT, optimizer: dict[str, Tensor], horizon: dict[str, Any]) -> None:
        """Write a checkpoint of this moment; the step's older one, if any, is replaced."""
        with write_directory(self.checkpoint_folder(state.step)) as folder:
            save_weights(model, folder)
            with write_beside(folder / OPTIMIZER) as path:
                safetensors.torch.save_file({k: v.detach().cpu().contiguous() for k, v in optimizer.items()}, path)
            write_json(folder / STATE, {"state": state.as_json(), "horizon": horizon})
            write_json(folder / MANIFEST, _hashes(folder))

    def save_epoch(self, epoch: int, model: GPT) -> str:
        """Keep the weights as they stand at the end of an epoch; give the SHA-256 of their file."""
        with write_directory(self.epoch_folder(epoch)) as folder:
            save_weights(model, folder)
            return sha256_of(folder / WEIGHTS)

    def checkpoints(self, say: Callable[[str], None]) -> Iterator[Checkpoint]:
        """Whole checkpoints, newest first; a damaged one is passed over, and said."""
        for folder in sorted(self.folder.glob("step-*"), reverse=True):
            reason = _unusable(folder, self.epochs)
            if reason:
                say(f"checkpoint {folder} {reason}; using the one before")
                continue
            content = read_json(folder / STATE)
            yield Checkpoint(folder, RunState.from_json(content["state"]), content["horizon"])

    def prune(self, *, upto: int, newest: int, also: set[int]) -> None:
        """Remove the checkpoints up to a step but the newest ones and those of the steps `also`.

        Later ones, of a run over more epochs, must not push out those that this run may need.
        """
        last = self.checkpoint_folder(upto).name
        folders = sorted(folder for folder in self.folder.glob("step-*") if folder.name <= last)
        for folder in folders[:-newest]:
            if int(folder.name.removeprefix("step-")) not in also:
                shutil.rmtree(folder)

    def newest_upto(self, step: int) -> Path | None:
        """The newest checkpoint of a step or one before it, or None."""
        return next((self.checkpoint_folder(each) for each in reversed(self.steps()) if each <= step), None)

    def remember_micro_batch(self, sequences: int, *, under: dict[str, Any]) -> None:
        """Keep how many sequences at a time memory holds `under` these circumstances."""
        write_json(self.folder / MICRO_BATCH, {"sequences": sequences, "under": under})

    def micro_batch(self, *, under: dict[str, Any]) -> int | None:
        """What was kept under the same circumstances, or None."""
        path = self.folder / MICRO_BATCH
        kept = read_json(path) if path.exists() else {}
        return kept.get("sequences") if kept.get("under") == under else None

    def is_empty(self) -> bool:
        """Whether there is no checkpoint at all."""
        return not any(self.folder.glob("step-*"))


def prune_runs(root: Path, *, keep: int) -> None:
    """Remove the configurations trained least recently, but `keep`; one that is being trained stays."""
    with contextlib.suppress(OSError):  # another process may be removing the same ones
        runs = sorted((folder for folder in root.iterdir() if folder.is_dir()), key=lambda f: f.stat().st_mtime)
        for folder in runs[:-keep]:
            with contextlib.suppress(Timeout), FileLock(folder / "lock", timeout=0):
                shutil.rmtree(folder)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder by hard links where the file system allows, for nothing here is ever written in place.

    Windows gets copies: there a file that DVC has made read-only could not be removed under its other name.
    """
    shutil.copytree(source, target, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    with contextlib.suppress(OSError):
        if os.name != "nt":
            os.link(source, target)
            return
    shutil.copyfile(source, target)


def _hashes(folder: Path) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST}


def _unusable(folder: Path, epochs: Path) -> str | None:
    """Why training cannot continue from a checkpoint, or None."""
    damage = _damage(folder, epochs)
    if damage:
        return f"is damaged ({damage})"
    if read_json(folder / STATE)["state"].get("returns"):  # written by an older version
        return "is of a run that went back after a divergence, which no run does any more"
    return None


def _damage(folder: Path, epochs: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        promised = read_json(folder / MANIFEST)
    except UserError as error:
        return str(error)
    found = _hashes(folder)
    wrong = sorted(name for name in promised.keys() | found.keys() if promised.get(name) != found.get(name))
    if wrong:
        return f"{', '.join(wrong)} changed since it was written"
    weights = read_json(folder / STATE)["state"]["epoch_weights"]
    others = [f"epoch-{n}" for n, sha256 in enumerate(weights, start=1) if _sha256(epochs, n) != sha256]
    return f"the weights of {', '.join(others)} are gone or another run's" if others else None


def _sha256(epochs: Path, epoch: int) -> str | None:
    """The hash of an epoch's weights, if there are any."""
    path = epochs / f"epoch-{epoch}" / WEIGHTS
    return sha256_of(path) if path.exists() else None


RESUME = "resume"


def export_model(store: CheckpointStore, manifest: Manifest, output: Path, *, steps: set[int]) -> None:
    """Put the epochs and the checkpoints of `steps` in `store` into `output`, whole or not at all."""
    with write_directory(output) as folder:
        for epoch in range(1, manifest.epochs + 1):
            copy_tree(store.epochs / f"epoch-{epoch}", folder / f"epoch-{epoch}")
        for checkpoint in map(store.checkpoint_folder, sorted(steps)):
            if checkpoint.exists():  # a trunk is missing if the run went on from behind it
                copy_tree(checkpoint, folder / RESUME / checkpoint.name)
        write_json(folder / MANIFEST, manifest.model_dump())
