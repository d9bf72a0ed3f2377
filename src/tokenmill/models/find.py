"""The refs `epoch-N` that the stage `report` makes: they hold what an epoch measured, and here its model is found.

They name no model: when they are made, the dvc.lock that records it is not committed yet. The model is the one whose
history, in the work tree or in a commit near the ref, tells the same losses of that epoch.

Which model is meant: an epoch of the workspace, of another revision, or a folder.
"""

import csv
import json
import re
from pathlib import Path

from tokenmill.core import git, paths
from tokenmill.core.errors import UserError
from tokenmill.models.revision import Checkpoint, available, checkpoint_at, chosen_epoch, in_folder

TOLD = ("tokens", "train_loss", "val_loss")
"""What must agree."""


def epoch_of(root: Path, rev: str) -> int | None:
    """The epoch that a ref `epoch-N` is about; None for any other revision."""
    found = re.fullmatch(r"(?:refs/)?epoch-(\d+)", rev)
    return int(found[1]) if found and git.references(root, f"refs/epoch-{found[1]}") else None


def measured_at(root: Path, epoch: int) -> Checkpoint:
    """The model whose metrics the ref `epoch-N` holds: of the workspace, of HEAD, or of the commit before the ref.

    Raises:
        UserError: it is none of these.
    """
    ref = f"refs/epoch-{epoch}"
    measured = json.loads(git.content(root, ref, paths.TRAIN_METRICS) or "{}")
    epochs = available(root)
    if len(epochs) >= epoch and _tells((root / paths.HISTORY), measured, epoch):
        return epochs[epoch - 1]
    for rev in ("HEAD", f"{ref}^"):
        if _same(git.content(root, rev, paths.HISTORY) or "", measured, epoch):
            return checkpoint_at(root, rev, epoch)
    raise UserError(
        f"the model that epoch-{epoch} measured is neither in the workspace nor in HEAD nor in the commit before it; "
        "name the revision or the experiment that has it, or `dvc repro` makes model and refs anew."
    )


def _tells(history: Path, measured: dict[str, float], epoch: int) -> bool:
    return history.exists() and _same(history.read_text(encoding="utf-8"), measured, epoch)


def _same(history: str, measured: dict[str, float], epoch: int) -> bool:
    """Whether a history.csv tells of an epoch what was measured."""
    rows = [row for row in csv.DictReader(history.splitlines()) if row.get("epoch") == str(epoch)]
    return any(all(float(row[name]) == measured.get(name) for name in TOLD) for row in rows)


def find(
    root: Path,
    *,
    epoch: int | None = None,
    rev: str | None = None,
    model: Path | None = None,
    tokenizer: Path | None = None,
) -> Checkpoint:
    """The one checkpoint that these say; with none of them the last epoch in the workspace.

    Args:
        root: of the project.
        epoch: counts from 1; else the last one.
        rev: a git revision, a DVC experiment, or a ref `epoch-N`.
        model: a folder with config.json, model.safetensors and, if `tokenizer` is not given, tokenizer.json.
        tokenizer: the file that goes with `model`.

    Raises:
        UserError: there is no such thing; says what there is.
    """
    if model is not None:
        if epoch is not None or rev is not None:
            raise UserError("--model names one model; leave out --epoch and --rev.")
        return in_folder(model, tokenizer)
    if tokenizer is not None:
        raise UserError("--tokenizer goes with --model; the other models know their own.")
    if rev is not None:
        measured = epoch_of(root, rev)
        if measured is None:
            return checkpoint_at(root, rev, epoch)
        if epoch not in (None, measured):
            raise UserError(f"--rev {rev} is of epoch {measured}; leave out --epoch {epoch}.")
        return measured_at(root, measured)
    epochs = available(root)
    if not epochs:
        raise UserError(f"there is no model in {root / paths.MODEL}; `dvc repro` trains one, `dvc pull` fetches one.")
    return epochs[chosen_epoch(epoch, len(epochs), "the workspace") - 1]
