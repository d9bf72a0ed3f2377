"""A trained model on disk and the tokenizer that belongs to it.

A revision of a project: its files out of git and out of DVC's cache or remote; the work tree is not touched.

Models of other revisions: found through their dvc.lock, fetched from DVC's cache or remote, not into the work tree.

DVC's own file system over a revision reads the cache first, then the remote. What it gives is kept below
`.dvc/tmp/tokenmill`, under the hash that dvc.lock records, and is not fetched twice.
"""

import contextlib
import difflib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from filelock import FileLock

from tokenmill.core import git, paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_atomic
from tokenmill.model.huggingface import CONFIG, WEIGHTS
from tokenmill.model.manifest import MANIFEST, read_manifest


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


class Snapshot:
    """The files that one revision of the project at `root` holds or records."""

    def __init__(self, root: Path, rev: str):
        """Resolve the revision: one of git's, or a DVC experiment.

        Raises:
            UserError: there is no such revision, or no DVC project.
        """
        from dvc.api import DVCFileSystem  # noqa: PLC0415 (takes a second to load)
        from dvc.repo import Repo  # noqa: PLC0415
        from dvc.scm import SCMError  # noqa: PLC0415

        self.root, self.rev = root, rev
        if not (root / ".dvc").is_dir() or not git.references(root):
            raise UserError(f"{root.resolve()} is no DVC project with commits in git; other revisions need one.")
        try:
            if not rev:  # which DVC takes for the work tree
                raise SCMError("no name")
            with Repo(str(root)) as here:  # remotes as they are now: those of a revision lose their folder
                default = {name: here.config["core"][name] for name in ("remote",) if name in here.config["core"]}
                remotes = {"core": default, "remote": dict(here.config["remote"])}
            self._files = DVCFileSystem(str(root), rev=rev, config=remotes)
            self.sha = self._files.repo.get_rev()
        except (SCMError, AttributeError):  # the latter for what is no commit, as HEAD^{tree}
            raise UserError(f"there is no revision or experiment {rev or repr(rev)}; {_near(root, rev)}") from None

    def has(self, file: Path) -> bool:
        """Whether the revision names a file, in git or in dvc.lock; its content may be out of reach."""
        return self._files.exists(f"/{file.as_posix()}")

    def hash_of(self, output: Path) -> str | None:
        """What dvc.lock records of an output, if it does."""
        try:
            recorded = self._files.info(f"/{output.as_posix()}").get("md5")
        except FileNotFoundError:
            return None
        return str(recorded).removesuffix(".dir") if recorded else None

    def copy(self, source: Path, target: Path) -> None:
        """Copy one file, whole or not at all.

        Raises:
            UserError: its content is out of reach.
        """
        try:
            with (
                cast("IO[bytes]", self._files.open(f"/{source.as_posix()}", "rb")) as read,
                write_atomic(target) as write,
            ):
                shutil.copyfileobj(read, write, 1 << 20)
        except Exception as error:  # a remote fails in its own client's ways
            raise UserError(
                f"{source} of {self.rev} ({self.sha[:7]}) is neither in DVC's cache nor in a remote "
                f"({' '.join(str(error).split())}); check it out and `dvc push` where it was trained, or "
                f"`git checkout {self.rev}` and `dvc repro` here."
            ) from None

    def close(self) -> None:
        """Let go of git and DVC."""
        self._files.close()


def _near(root: Path, rev: str) -> str:
    """Names that may have been meant."""
    names = git.revisions(root)
    near = difflib.get_close_matches(rev, names, n=4, cutoff=0.5) or names[:12]
    return f"near it: {', '.join(near)}."


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
