"""Models of other revisions: found through their dvc.lock, fetched from DVC's cache or remote, not into the work tree.

DVC's own file system over a revision reads the cache first, then the remote. What it gives is kept below
`.dvc/tmp/tokenmill`, under the hash that dvc.lock records, and is not fetched twice.
"""

import contextlib
import difflib
import shutil
from pathlib import Path
from typing import IO, cast

from filelock import FileLock

from tokenmill.checkpoints import git
from tokenmill.checkpoints.checkpoint import MODELS, TOKENIZER, Checkpoint, chosen_epoch, epoch_folder
from tokenmill.errors import UserError
from tokenmill.files import write_atomic
from tokenmill.model.weights import CONFIG, WEIGHTS
from tokenmill.training.manifest import MANIFEST, read_manifest

FETCHED = Path(".dvc/tmp/tokenmill")
"""Where models of other revisions are kept; git ignores it, and deleting it costs only the fetching."""


class Revision:
    """The outputs that one revision of the project at `root` records."""

    def __init__(self, root: Path, rev: str):
        """Resolve the revision.

        Raises:
            UserError: there is no such revision, or no DVC project.
        """
        from dvc.api import DVCFileSystem  # noqa: PLC0415 (takes a second to load)
        from dvc.scm import SCMError  # noqa: PLC0415

        self.root, self.rev = root, rev
        if not (root / ".dvc").is_dir() or not git.references(root):
            raise UserError(f"{root.resolve()} is no DVC project with commits in git; --rev needs one.")
        try:
            self._files = DVCFileSystem(str(root), rev=rev)
            self.sha = self._files.repo.get_rev()
        except SCMError:
            raise UserError(f"there is no revision or experiment {rev}; {_near(root, rev)}") from None

    def models(self) -> Path:
        """The manifest of the models, fetched: a folder that `epoch` completes."""
        return self._fetch(MODELS, [MANIFEST])

    def epoch(self, epoch: int) -> Path:
        """The folder of an epoch's weights, fetched."""
        names = [f"{epoch_folder(epoch)}/{name}" for name in (CONFIG, WEIGHTS)]
        return self._fetch(MODELS, names) / epoch_folder(epoch)

    def tokenizer(self) -> Path:
        """The file tokenizer.json, fetched."""
        return self._fetch(TOKENIZER.parent, [TOKENIZER.name]) / TOKENIZER.name

    def _fetch(self, output: Path, names: list[str]) -> Path:
        """Files of one output, in a folder named after its hash."""
        target = self.root / FETCHED / self._hash(output)
        if all((target / name).exists() for name in names):
            return target
        target.mkdir(parents=True, exist_ok=True)
        with FileLock(target / ".lock"):
            for name in names:
                if not (target / name).exists():
                    self._copy(output / name, target / name)
        return target

    def _hash(self, output: Path) -> str:
        """What dvc.lock records of an output."""
        try:
            recorded = self._files.info(f"/{output.as_posix()}").get("md5")
        except FileNotFoundError:
            recorded = None
        if not recorded:
            raise UserError(
                f"{self.rev} ({self.sha[:7]}) records no {output}: nothing was trained there; "
                f"`git checkout {self.rev}` and `dvc repro` would."
            )
        return str(recorded).removesuffix(".dir")

    def _copy(self, source: Path, target: Path) -> None:
        """Copy one file out of cache or remote, whole or not at all."""
        try:
            with (
                cast("IO[bytes]", self._files.open(f"/{source.as_posix()}", "rb")) as read,
                write_atomic(target) as write,
            ):
                shutil.copyfileobj(read, write, 1 << 20)
        except Exception as error:  # a remote fails in its own client's ways
            raise UserError(
                f"{source} of {self.rev} ({self.sha[:7]}) is neither in DVC's cache nor in a remote "
                f"({' '.join(str(error).split())}); `dvc push` where it was trained, or `git checkout {self.rev}` "
                "and `dvc repro` here."
            ) from None

    def close(self) -> None:
        """Let go of git and DVC."""
        self._files.close()


def _near(root: Path, rev: str) -> str:
    """Names that may have been meant."""
    names = git.revisions(root)
    near = difflib.get_close_matches(rev, names, n=4, cutoff=0.5) or names[:12]
    return f"near it: {', '.join(near)}."


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
