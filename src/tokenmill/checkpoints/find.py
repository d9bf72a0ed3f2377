"""Which model is meant: an epoch of the workspace, of another revision, or a folder."""

from pathlib import Path

from tokenmill import paths
from tokenmill.checkpoints.checkpoint import Checkpoint, available, chosen_epoch, in_folder
from tokenmill.checkpoints.epoch_refs import epoch_of, measured_at
from tokenmill.checkpoints.revisions import checkpoint_at
from tokenmill.errors import UserError


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
