"""The checkpoints of a run in `.resume/<fingerprint>/`, wherever DVC runs its stage.

    epochs/epoch-3-1f6a90c2/
                       the weights at the end of an epoch; the digits begin their SHA-256, by which
                       the state of a checkpoint names them
    step-000001200/    all that is needed to continue: weights, optimizer, state; its manifest is
                       written last
    micro_batch-0.json the micro-batch that the memory of this process of a group held, if it ever
                       ran out (memory.py)
    identity.json      what decides the run's numbers (identity.py)
    lock, holder       which process trains this configuration

A checkpoint appears by a rename, holds the hash of each of its files, and is read only if they
agree. Nothing is pickled, and no link in a run's folder is followed. `export_model` copies the
epochs and the last checkpoint to `models/gpt/`, so that another machine can continue.
"""

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import safetensors.torch
from filelock import FileLock, Timeout
from pydantic import BaseModel, Field
from torch import Tensor

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import (
    hold_lock,
    is_regular,
    link_or_copy,
    read_bytes,
    refuse_link,
    remove,
    sha256_of,
    write_beside,
    write_directory,
    write_json,
    write_text,
)
from tokenmill.costs import TIMING
from tokenmill.formats.records import adapter, read_record
from tokenmill.formats.token_file import Sha256
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import hf_config, load_weights, read_weights, save_weights
from tokenmill.model.manifest import (
    ADAPTER_FOLDER,
    CONFIG,
    EPOCH_ADAPTER,
    MANIFEST,
    WEIGHTS,
    Manifest,
)
from tokenmill.training.history import RunState
from tokenmill.training.identity import Resumable
from tokenmill.training.lora import load_adapter, save_adapter

OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
RESUME = "resume"
"""The folder of checkpoints in `models/gpt/`."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk whose files match their hashes."""

    folder: Path
    state: RunState
    resumable: Resumable
    """The parameters with which it was trained that a run may change."""

    @property
    def step(self) -> int:
        """The number of optimizer steps done."""
        return self.state.step

    def load(self, model: GPT) -> dict[str, Tensor]:
        """Load the weights into `model`; return the optimizer's state."""
        (load_adapter if model.lora else load_weights)(model, self.folder)
        state = read_weights(self.folder / OPTIMIZER)
        # Copied instead of mapped, because the file may be pruned
        return {name: tensor.clone() for name, tensor in state.items()}


class CheckpointStore:
    """The checkpoints and the epochs' weights of one configuration."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.epochs = folder / "epochs"

    @contextlib.contextmanager
    def lock(self, say: Callable[[str], None]) -> Iterator[None]:
        """Hold the lock of this configuration. If another process trains it, wait for that process
        and say so.

        Raises:
            UserError: there is a link in the run's folder, which no run makes.
        """
        refuse_link(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        holder = self.folder / "holder"

        def waiting() -> None:
            who = "unknown"
            if is_regular(holder):
                who = read_bytes(holder, follow=False).decode("utf-8", "replace")
            say(
                f"process {who} is training this configuration; waiting for it to end, then "
                "continuing from there"
            )

        with hold_lock(self.folder / "lock", waiting):
            for leftover in list(self.folder.rglob(".*.tmp")):  # what a killed process was writing
                remove(leftover)
            for path in self.folder.rglob("*"):
                refuse_link(path)
            write_text(holder, str(os.getpid()))
            yield

    def checkpoint_folder(self, step: int) -> Path:
        """The folder of a step's checkpoint, which may not exist; the names sort like the steps."""
        return self.folder / f"step-{step:09d}"

    def epoch_folder(self, epoch: int, sha256: str) -> Path:
        """The folder of the weights with this hash at an epoch's end, which may not exist."""
        return paths.epoch_folder(self.folder, epoch, sha256)

    def steps(self) -> list[int]:
        """The steps of all checkpoints, whole or not, in order; none behind a link."""
        return [step for step, _ in paths.step_folders(self.folder)]

    def newest_upto(self, step: int) -> Path | None:
        """The newest checkpoint whose step is at most `step`; None if there is none."""
        return next(
            (self.checkpoint_folder(each) for each in reversed(self.steps()) if each <= step), None
        )

    def checkpoints(self, say: Callable[[str], None]) -> Iterator[Checkpoint]:
        """Yield the usable checkpoints, newest first; say about each of the others why it is left
        out."""
        for step in reversed(self.steps()):
            try:
                checkpoint = self.checkpoint(step)
            except (UserError, OSError) as damage:
                folder = self.checkpoint_folder(step)
                say(f"checkpoint {folder} is damaged ({damage}); using the one before")
            else:
                yield checkpoint

    def checkpoint(self, step: int) -> Checkpoint:
        """The checkpoint of a step, after its files and the weights of its epochs were compared
        with their hashes.

        Raises:
            UserError: it is damaged; the message is a phrase.
            OSError: a file is missing or cannot be read.
        """
        folder = self.checkpoint_folder(step)
        for path in (folder, folder / MANIFEST, self.epochs):
            refuse_link(path)
        expected, found = read_hashes(folder), _hashes(folder)
        if wrong := {name for name, _ in expected.items() ^ found.items()}:
            raise UserError(f"{', '.join(sorted(wrong))} changed since it was written")
        saved = read_state(folder)
        state = saved.state
        if state.step != step:
            raise UserError(f"it is of step {state.step:,}")
        epochs, weights = len(state.epochs), len(state.epoch_weights)
        if epochs != weights:
            raise UserError(f"it has rows of {epochs} epochs, and weights of {weights}")
        others = [
            f"epoch-{epoch}"
            for epoch, files in enumerate(state.epoch_files(), start=1)
            if not has_files(self.epoch_folder(epoch, files[WEIGHTS]), files)
        ]
        if others:
            raise UserError(f"the weights of {', '.join(others)} are gone or changed")
        return Checkpoint(folder, state, saved.resumable)

    def save(
        self, state: RunState, model: GPT, optimizer: dict[str, Tensor], resumable: dict[str, Any]
    ) -> None:
        """Write a checkpoint; an older one of the same step is replaced."""
        with write_directory(self.checkpoint_folder(state.step)) as folder:
            if model.lora:  # which is all that training changes
                write_json(folder / CONFIG, hf_config(model.config))
                save_adapter(model, folder)
            else:
                save_weights(model, folder)
            with write_beside(folder / OPTIMIZER) as path:
                safetensors.torch.save_file(
                    {k: v.detach().cpu().contiguous() for k, v in optimizer.items()}, path
                )
            content = {"state": adapter(RunState).dump_python(state), "resumable": resumable}
            write_json(folder / STATE, content)
            write_json(folder / MANIFEST, _hashes(folder))

    def save_epoch(self, epoch: int, model: GPT) -> dict[str, str]:
        """Keep the weights at the end of an epoch, and with LoRA also its adapter. Return the
        SHA-256 of each file by its path in the folder."""
        unnamed = self.epochs / ".epoch.tmp"  # until the hash is known
        with write_directory(unnamed) as folder:
            save_weights(model, folder)
            if model.lora:
                save_adapter(model, folder / ADAPTER_FOLDER)
            hashes = {
                name: sha256_of(folder / name)
                for name in (WEIGHTS, EPOCH_ADAPTER)
                if (folder / name).exists()
            }
        target = self.epoch_folder(epoch, hashes[WEIGHTS])
        remove(target)
        unnamed.replace(target)
        return hashes

    def prune(self, state: RunState, *, newest: int, also: set[int]) -> None:
        """Remove the checkpoints up to that of `state`, except the `newest` last ones of them and
        those of the steps in `also`; and the weights of its epochs that no checkpoint names any
        more.

        Later checkpoints belong to a run over more epochs. They must not push out those that this
        run may need. Weights of a later epoch may be written at this moment.
        """
        for step in [step for step in self.steps() if step <= state.step][:-newest]:
            if step not in also:
                remove(self.checkpoint_folder(step))
        if self.epochs.is_symlink():
            return
        own = {*map(self.epoch_folder, itertools.count(1), state.epoch_weights)}
        others = {
            path
            for path in {*self.epochs.glob("epoch-*-*")} - own
            if (name := paths.EPOCH_NAME.fullmatch(path.name)) and int(name[1]) <= len(own)
        }
        if others:
            for folder in others - {self.epoch_folder(*one) for one in self.named_weights()}:
                remove(folder)

    def named_weights(self) -> set[tuple[int, str]]:
        """The epochs of all checkpoints, each with the SHA-256 of its weights."""
        found = set[tuple[int, str]]()
        for folder in map(self.checkpoint_folder, self.steps()):
            with contextlib.suppress(UserError, OSError):
                for path in (folder, folder / STATE):
                    refuse_link(path)
                found.update(enumerate(read_state(folder).state.epoch_weights, start=1))
        return found


class SavedState(BaseModel):
    """The contents of state.json."""

    state: RunState
    resumable: Resumable


FileName = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
"""The name of a file in a manifest. It becomes a path, so it must not lead out of its folder."""


def read_hashes(folder: Path) -> dict[str, str]:
    """Read the manifest of a checkpoint: the SHA-256 of each of its other files by name."""
    return read_record(folder / MANIFEST, dict[FileName, Sha256], way_out="it is not used")


def read_state(folder: Path) -> SavedState:
    """Read the state.json of a checkpoint."""
    return read_record(folder / STATE, SavedState, way_out="it is not used")


def _hashes(folder: Path) -> dict[str, str]:
    return {
        path.name: sha256_of(path, follow=False)
        for path in sorted(folder.iterdir())
        if path.name != MANIFEST
    }


def has_files(folder: Path, hashes: dict[str, str]) -> bool:
    """Whether a folder has files of these names with these hashes, and not links to them."""
    return all(
        not (path := folder / name).parent.is_symlink()
        and is_regular(path)
        and sha256_of(path, follow=False) == sha256
        for name, sha256 in hashes.items()
    )


def prune_runs(root: Path, *, keep: int, last: str) -> None:
    """Remove all configurations but the `keep` ones trained last and those in training. Of each
    removed one, only its tables of times stay.

    Args:
        last: the one that was trained last of all, whatever the clock says.
    """
    with contextlib.suppress(OSError):  # another process may be removing the same ones
        runs = sorted(
            (
                one
                for one in root.iterdir()
                if one.is_dir() and not one.is_symlink() and one.name != paths.PACKED_SHARDS
            ),
            key=lambda one: (one.name == last, one.stat().st_mtime),
        )
        for folder in runs[:-keep]:
            if (folder / "lock").is_symlink():
                continue
            with contextlib.suppress(Timeout), FileLock(folder / "lock", timeout=0):
                if is_regular(folder / TIMING):
                    (folder / TIMING).replace(root / f"{folder.name}.{TIMING}")
                shutil.rmtree(folder)


def export_model(
    store: CheckpointStore,
    manifest: Manifest,
    output: Path,
    *,
    steps: set[int],
    say: Callable[[str], None],
) -> None:
    """Write the folder `models/gpt/`, whole or not at all: all epochs, the checkpoints of `steps`,
    and the manifest. Say which of these checkpoints is damaged, and so left out."""
    with write_directory(output) as folder:
        for epoch, sha256 in enumerate(manifest.weights, start=1):
            target = folder / f"epoch-{epoch}"
            copy_tree(store.epoch_folder(epoch, sha256), target)
            write_json(target / CONFIG, hf_config(manifest.model))
        # The checkpoint before the decay is missing if the run started after it
        for step in sorted(steps.intersection(store.steps())):
            source = store.checkpoint_folder(step)
            try:
                store.checkpoint(step)
            except (UserError, OSError) as damage:
                say(
                    f"checkpoint {source} is damaged ({damage}); {output} is without it, so a "
                    "run over more epochs begins before it"
                )
            else:
                copy_tree(source, folder / RESUME / source.name)
        write_json(folder / MANIFEST, manifest.model_dump())


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder by hard links where the file system has them; the files never change.

    Windows gets copies. There, a file that DVC has made read-only could not be removed under its
    other name.
    """
    shutil.copytree(source, target, copy_function=link_or_copy)
