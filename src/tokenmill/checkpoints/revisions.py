"""Models of other revisions: found through their dvc.lock, fetched from DVC's cache or remote, not into the work tree.

DVC's own file system over a revision reads the cache first, then the remote. What it gives is kept below
`.dvc/tmp/tokenmill`, under the hash that dvc.lock records, and is not fetched twice.
"""

import contextlib
from pathlib import Path

from filelock import FileLock

from tokenmill import paths
from tokenmill.checkpoints.checkpoint import Checkpoint, chosen_epoch, epoch_folder
from tokenmill.checkpoints.snapshot import Snapshot
from tokenmill.errors import UserError
from tokenmill.model.weights import CONFIG, WEIGHTS
from tokenmill.training.manifest import MANIFEST, read_manifest

FETCHED = Path(".dvc/tmp/tokenmill")
"""Where models of other revisions are kept; git ignores it, and deleting it costs only the fetching."""


class Revision(Snapshot):
    """The models and the tokenizer that one revision records."""

    def models(self) -> Path:
        """The manifest of the models, fetched: a folder that `epoch` completes."""
        return self._fetch(paths.MODEL, [MANIFEST])

    def epoch(self, epoch: int) -> Path:
        """The folder of an epoch's weights, fetched."""
        names = [f"{epoch_folder(epoch)}/{name}" for name in (CONFIG, WEIGHTS)]
        return self._fetch(paths.MODEL, names) / epoch_folder(epoch)

    def tokenizer(self) -> Path:
        """The file tokenizer.json, fetched."""
        return self._fetch(paths.TOKENIZER.parent, [paths.TOKENIZER.name]) / paths.TOKENIZER.name

    def _fetch(self, output: Path, names: list[str]) -> Path:
        """Files of one output, in a folder named after its hash."""
        target = self.root / FETCHED / self._hash(output)
        if all((target / name).exists() for name in names):
            return target
        target.mkdir(parents=True, exist_ok=True)
        with FileLock(target / ".lock"):
            for name in names:
                if not (target / name).exists():
                    self.copy(output / name, target / name)
        return target

    def _hash(self, output: Path) -> str:
        """What dvc.lock records of an output."""
        recorded = self.hash_of(output)
        if not recorded:
            raise UserError(
                f"{self.rev} ({self.sha[:7]}) records no {output}: nothing was trained there; "
                f"`git checkout {self.rev}` and `dvc repro` would."
            )
        return recorded


def epochs_at(root: Path, rev: str) -> int:
    """How many epochs the model at a revision has.

    Raises:
        UserError: there is no such revision or model, or it was never kept.
    """
    with contextlib.closing(Revision(root, rev)) as revision:
        return read_manifest(revision.models()).epochs


def checkpoint_at(root: Path, rev: str, epoch: int | None) -> Checkpoint:
    """An epoch (else the last) of the model at a revision, fetched if it is not here.

    Raises:
        UserError: there is no such revision, model or epoch, or it was never kept.
    """
    with contextlib.closing(Revision(root, rev)) as revision:
        number = chosen_epoch(epoch, read_manifest(revision.models()).epochs, rev)
        return Checkpoint(f"epoch {number} of {rev}", revision.epoch(number), revision.tokenizer())
