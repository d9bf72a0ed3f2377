"""The refs `epoch-N` that the stage `epochs` makes: they hold what an epoch measured, and here its model is found.

They name no model: when they are made, the dvc.lock that records it is not committed yet. The model is the one whose
history, in the work tree or in a commit near the ref, tells the same losses of that epoch.
"""

import csv
import json
import re
from pathlib import Path

from tokenmill import paths
from tokenmill.checkpoints import git
from tokenmill.checkpoints.checkpoint import Checkpoint, available
from tokenmill.checkpoints.revisions import checkpoint_at
from tokenmill.errors import UserError

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
