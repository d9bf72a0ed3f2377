"""A trained model on disk and the tokenizer that belongs to it."""

from dataclasses import dataclass
from pathlib import Path

from tokenmill import paths
from tokenmill.errors import UserError
from tokenmill.model.weights import CONFIG
from tokenmill.training.manifest import MANIFEST, read_manifest


@dataclass(frozen=True)
class Checkpoint:
    """A model that can write, and where its files are."""

    name: str
    """For people: `epoch 4`, `epoch 2 of blest-jube`, a folder's path."""
    folder: Path
    """With config.json and model.safetensors."""
    tokenizer: Path
    """The file tokenizer.json."""


def available(root: Path) -> list[Checkpoint]:
    """The epochs of the model in the project at `root`, in order; none where nothing was trained yet."""
    if not (root / paths.MODEL / MANIFEST).exists():
        return []
    return [
        Checkpoint(f"epoch {epoch}", root / paths.MODEL / epoch_folder(epoch), root / paths.TOKENIZER)
        for epoch in range(1, read_manifest(root / paths.MODEL).epochs + 1)
    ]


def epoch_folder(epoch: int) -> str:
    """Where an epoch's weights lie within a folder of models."""
    return f"epoch-{epoch}"


def chosen_epoch(epoch: int | None, epochs: int, where: str) -> int:
    """The epoch asked for, or the last.

    Raises:
        UserError: there are fewer.
    """
    if epoch is None:
        return epochs
    if not 1 <= epoch <= epochs:
        raise UserError(f"there is no epoch {epoch} in {where}: it has {_listed(epochs)}.")
    return epoch


def _listed(epochs: int) -> str:
    return "epoch 1" if epochs == 1 else f"epochs 1 to {epochs}"


def in_folder(folder: Path, tokenizer: Path | None) -> Checkpoint:
    """The model in a folder, with the tokenizer given or the one beside it.

    Raises:
        UserError: it is no model of this project, or has no tokenizer.
    """
    if not (folder / CONFIG).exists():
        raise UserError(f"--model {folder} holds no {CONFIG}: give a folder such as {paths.MODEL / epoch_folder(1)}.")
    file = tokenizer or folder / paths.TOKENIZER.name
    if not file.exists():
        way = "give another." if tokenizer else "copy it there, or name it by --tokenizer FILE."
        raise UserError(f"there is no tokenizer {file}; {way}")
    return Checkpoint(str(folder), folder, file)
