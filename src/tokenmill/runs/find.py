"""Find the trained model that a user names: an epoch of the work tree or of a revision, an
experiment, or a folder.

The stage `report` makes the refs `epoch-N`. They cannot name a model, because the dvc.lock that
records it is not yet committed then. Their model is the one whose history, in the work tree or in a
commit near the ref, has the same losses at that epoch.
"""

import contextlib
import difflib
import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tokenmill import git
from tokenmill.core import paths
from tokenmill.core.errors import UserError, first_line
from tokenmill.core.files import hold_lock, open_regular, read_bytes, write_atomic, write_json
from tokenmill.display import note
from tokenmill.dvc_lock import FOLDER, OBJECT, Lock, listed
from tokenmill.formats.records import parse_record, parse_rows, read_record
from tokenmill.model.manifest import CONFIG, MANIFEST, WEIGHTS, read_manifest
from tokenmill.runs.consistency import cached_manifest
from tokenmill.runs.epoch_refs import EPOCH
from tokenmill.runs.under_way import is_finished, under_way, unfinished
from tokenmill.temporary import temporary_folder
from tokenmill.training.history import EpochRow

if TYPE_CHECKING:
    from dvc.repo import Repo

COMPARED = ["tokens", "train_loss", "val_loss"]
"""The columns of history.csv that must equal the metrics of a ref."""

FETCHED = Path(".dvc/tmp/tokenmill")
"""The folder of fetched outputs. Git ignores it; if it is deleted, they are only fetched again."""


@dataclass(frozen=True)
class FoundModel:
    """A trained model on disk and the tokenizer that belongs to it."""

    name: str
    """A name for people: `epoch 4`, `epoch 2 of blest-jube`, a folder's path."""
    folder: Path
    """The folder with config.json and model.safetensors."""
    tokenizer: Path
    """The path of tokenizer.json."""
    rev: str | None = None
    """The revision that records it; None for a model of the work tree or in a folder."""

    @property
    def epoch(self) -> int | None:
        """The number of the epoch; None for a model that is not in the folder of one."""
        found = paths.EPOCH_NAME.fullmatch(self.folder.name)
        return int(found[1]) if found else None


def find_model(
    root: Path,
    *,
    epoch: int | None = None,
    rev: str | None = None,
    model: Path | None = None,
    tokenizer: Path | None = None,
) -> FoundModel:
    """The model that the arguments name. Without any, it is the last epoch in the work tree.

    Args:
        root: the folder of the project.
        epoch: the number of an epoch, from 1; None stands for the last one.
        rev: a git revision, a DVC experiment, or a ref `epoch-N`. Its files are fetched if they are
            not here.
        model: a folder with config.json, model.safetensors and, if `tokenizer` is not given,
            tokenizer.json.
        tokenizer: the tokenizer.json that belongs to `model`.

    Raises:
        UserError: there is no such model. The message says which models there are, or how to get
            it.
    """
    if model is not None:
        if epoch is not None or rev is not None:
            raise UserError(f"{model} is one model; leave out --epoch and --rev.")
        return _in_folder(model, tokenizer, root)
    if tokenizer is not None:
        raise UserError("--tokenizer goes with --model; the other models know their own.")
    if rev is not None:
        measured = _epoch_of_ref(root, rev)
        if measured is None:
            return _at_revision(root, rev, epoch)
        if epoch not in (None, measured):
            raise UserError(f"--rev {rev} is epoch {measured}; leave out --epoch {epoch}.")
        return _at_epoch_ref(root, measured)
    epochs = available(root)
    run = unfinished(root)
    if not epochs:
        why = "`dvc repro` trains one, `dvc pull` fetches one"
        if run:
            why = f"{run.sentence}; no epoch is finished yet"
        raise UserError(f"there is no model in {root / paths.MODEL}; {why}.")
    if run:
        note(f"{run.sentence}; the newest finished epoch is {len(epochs)}")
    return epochs[chosen_epoch(epoch, len(epochs), "the workspace") - 1]


def available(root: Path) -> list[FoundModel]:
    """The epochs in the work tree of the project at `root`, in order. Of a training under way they
    are those that are finished."""
    if is_finished(root):
        names = "epoch {}"
        epochs = range(1, read_manifest(root / paths.MODEL).epochs + 1)
        folders = [root / paths.MODEL / f"epoch-{epoch}" for epoch in epochs]
        tokenizer = root / paths.TOKENIZER
    elif run := under_way(root):
        names = "epoch {} of the training under way"
        folders = run.epochs
        tokenizer = run.tokenizer
    else:
        return []
    return [
        FoundModel(names.format(epoch), folder, tokenizer)
        for epoch, folder in enumerate(folders, start=1)
    ]


def chosen_epoch(epoch: int | None, epochs: int, where: str) -> int:
    """Return `epoch`, or the last one for None; refuse an epoch that does not exist. Errors call
    the run `where`."""
    if epoch is None:
        return epochs
    if not 1 <= epoch <= epochs:
        has = "epoch 1" if epochs == 1 else f"epochs 1 to {epochs}"
        raise UserError(f"there is no epoch {epoch} in {where}: it has {has}.")
    return epoch


def _in_folder(folder: Path, tokenizer: Path | None, root: Path) -> FoundModel:
    """The model in a folder. Its tokenizer is the given one, the one beside it, or the project's if
    the model is in the project."""
    if not (folder / CONFIG).exists():
        raise UserError(
            f"{folder} holds no {CONFIG}: give a folder such as {paths.MODEL / 'epoch-1'}."
        )
    beside = folder / paths.TOKENIZER.name
    is_of_project = (root / paths.MODELS).resolve() in folder.resolve().parents
    if is_of_project and not beside.exists():
        beside = root / paths.TOKENIZER
    file = tokenizer or beside
    if not file.exists():
        fix = "give another." if tokenizer else "copy it there, or name it by --tokenizer FILE."
        raise UserError(f"there is no tokenizer {file}; {fix}")
    return FoundModel(str(folder), folder, file)


def _at_revision(root: Path, rev: str, epoch: int | None) -> FoundModel:
    with contextlib.closing(Revision(root, rev)) as revision:
        number = chosen_epoch(
            epoch, read_manifest(revision.fetch(paths.MODEL, [MANIFEST])).epochs, rev
        )
        folder = f"epoch-{number}"
        models = revision.fetch(paths.MODEL, [f"{folder}/{CONFIG}", f"{folder}/{WEIGHTS}"])
        tokenizers = revision.fetch(paths.TOKENIZER.parent, [paths.TOKENIZER.name])
        return FoundModel(
            f"epoch {number} of {rev}", models / folder, tokenizers / paths.TOKENIZER.name, rev
        )


def _epoch_of_ref(root: Path, rev: str) -> int | None:
    """N if `rev` is an existing ref `epoch-N`; None for any other revision."""
    found = EPOCH.fullmatch(rev)
    return int(found[1]) if found and git.references(root, f"refs/epoch-{found[1]}") else None


def _at_epoch_ref(root: Path, epoch: int) -> FoundModel:
    """The model that the ref `epoch-N` measured. It is searched in the work tree, at HEAD, and at
    the commit before the ref."""
    epochs = available(root)
    if len(epochs) >= epoch and is_of_workspace(root, epoch):
        return epochs[epoch - 1]
    measured = _measured(root, epoch)
    for rev in ("HEAD", f"refs/epoch-{epoch}^"):
        if _holds(git.content(root, rev, paths.HISTORY), measured, epoch):
            return _at_revision(root, rev, epoch)
    raise UserError(
        f"the model that epoch-{epoch} measured is neither in the workspace nor in HEAD nor in "
        "the commit before it; name the revision or the experiment that has it, or "
        "`dvc repro -sf report`, which writes the refs of the model that is here."
    )


def is_of_workspace(root: Path, epoch: int) -> bool:
    """Whether the ref `epoch-N` exists and measured the run whose results are in the work tree."""
    history = root / paths.HISTORY
    measured = _measured(root, epoch)
    return bool(measured) and history.exists() and _holds(read_bytes(history), measured, epoch)


def _measured(root: Path, epoch: int) -> dict[str, float]:
    """What the ref `epoch-N` measured; nothing without the ref."""
    ref = f"refs/epoch-{epoch}"
    kept = git.content(root, ref, paths.TRAIN_METRICS) or b"{}"
    return parse_record(
        kept, dict[str, float], source=ref, way_out="`dvc repro -sf report` makes it"
    )


def _holds(history: bytes, measured: dict[str, float], epoch: int) -> bool:
    """Whether a history.csv has the measured values in the row of this epoch."""
    way_out = paths.way_out(paths.HISTORY)
    rows = parse_rows(history, EpochRow, source=paths.HISTORY, way_out=way_out)
    rows = [row for row in rows if row.epoch == epoch]
    return bool(rows) and all(getattr(rows[0], name) == measured.get(name) for name in COMPARED)


class Revision:
    """The files that one revision of the project at `root` holds or records. The work tree is not
    changed.

    git holds some. Of the others its dvc.lock names the objects, which DVC's cache has, or else the
    default remote, by today's configuration. Fetched outputs are kept in FETCHED, under the hash
    that dvc.lock records, and are not fetched twice.
    """

    def __init__(self, root: Path, rev: str):
        """Resolve the revision, which is one of git's or a DVC experiment.

        Raises:
            UserError: there is no such revision, or no DVC project, or a ref, a repository, a
                configuration or a dvc.lock that cannot be read.
        """
        from dvc.scm import SCMError, resolve_rev  # noqa: PLC0415 (a second)

        self.root = root
        self.rev = rev
        whole = root.resolve()
        if any((folder / ".git").exists() for folder in (whole, *whole.parents)):
            git.refuse_unreadable(root)
        git.experiments(root)  # DVC resolves no revision beside a ref that it cannot read
        if not (root / ".dvc").is_dir() or not git.references(root):
            raise UserError(
                f"{root.resolve()} is no DVC project with commits in git; other revisions need one."
            )
        self._repo = open_repo(root)
        with contextlib.suppress(SCMError):
            self.sha = resolve_rev(self._repo.scm, rev)
            # It may be a tree, as HEAD^{tree}; and no name is the work tree for DVC
            if rev and git.commits_here(root, [self.sha]):
                self._in_git = functools.cache(functools.partial(git.content, root, self.sha))
                self.lock = Lock.read(root, self.sha)
                return
        raise UserError(
            f"there is no revision or experiment {rev or repr(rev)}; {_similar(root, rev)}"
        )

    @property
    def label(self) -> str:
        """The name of the revision and, if the name is another, its hash."""
        sha = self.sha[:7]
        return self.rev if self.rev.startswith(sha) else f"{self.rev} ({sha})"

    @property
    def take(self) -> str:
        """The command that brings the parameters of the revision into the work tree."""
        # DVC alone knows the name of an experiment
        is_known = git.ask(self.root, "rev-parse", "--verify", "--quiet", self.rev) is not None
        return f"{'git checkout' if is_known else 'dvc exp apply'} {self.rev}"

    @property
    def again(self) -> str:
        """The commands that make the results of the revision in the work tree."""
        return f"`{self.take}` and `dvc repro`"

    def has(self, file: Path) -> bool:
        """Whether git or dvc.lock names the file. Its content may still be out of reach."""
        return bool(self._in_git(file) or self._object(file))

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the model that its dvc.lock records, unchecked; empty if DVC's cache does
        not have it."""
        return cached_manifest(self._repo, self._object(paths.MODEL))

    def copy(self, source: Path, target: Path) -> None:
        """Copy one file, whole or not at all.

        Raises:
            UserError: it is damaged, or out of reach.
        """
        if content := self._in_git(source):
            with write_atomic(target) as file:
                file.write(content)
        else:
            self._bring(self._object(source), target, source)

    def fetch(self, output: Path, names: list[str]) -> Path:
        """Fetch files of a folder that is an output, unless they are already here. Return the
        folder that holds them under the same names. A copy with a changed byte is fetched again.

        Raises:
            UserError: the revision does not record the output, or a file is out of reach.
        """
        name = self._object(output)
        if not name:
            raise UserError(
                f"{self.label} records no {output}: nothing was trained there; run {self.again}."
            )
        target = self.root / FETCHED / name.removesuffix(FOLDER)
        if all(_is_whole(target, each) for each in names):
            return target
        target.mkdir(parents=True, exist_ok=True)
        with hold_lock(target / ".lock"), temporary_folder() as folder:
            self._bring(name, folder / name, output)
            objects = listed(folder / name)
            for each in names:
                if not _is_whole(target, each):
                    self._bring(objects.get(each, ""), target / each, output / each)
                    write_json(target / f"{each}.md5", objects[each])
        return target

    def close(self) -> None:
        """Release git and DVC."""
        self._repo.close()

    def _object(self, output: Path) -> str:
        """The name of the object that dvc.lock records for an output; empty if there is none."""
        name = self.lock.outputs.get(output.as_posix()) or ""
        return name if OBJECT.fullmatch(name) else ""  # it becomes a part of a path

    def _bring(self, name: str, target: Path, source: Path) -> None:
        """Copy an object of DVC, whole or not at all. Errors call it `source`."""
        digest = hashlib.md5(usedforsecurity=False)
        try:
            with self._open(name) as read, write_atomic(target) as write:
                while block := read.read(1 << 20):
                    digest.update(block)
                    write.write(block)
                if digest.hexdigest() != name.removesuffix(FOLDER):
                    raise UserError(
                        f"{source} of {self.label} is damaged in DVC's cache or "
                        f"remote; {paths.DEEP}."
                    )
        except UserError:
            raise
        except Exception as error:  # each remote's client raises errors of its own
            # The words for a file that is nowhere only name it again
            is_nowhere = isinstance(error, FileNotFoundError)
            why = "" if is_nowhere else f" ({' '.join(str(error).split())})"
            # Not `dvc exp push`: DVC (3.67) would not find a remote with a relative path
            raise UserError(
                f"{source} of {self.label} is neither in DVC's cache nor in a remote{why}; "
                f"`{self.take}` and `dvc push` where it was trained, or {self.again} here."
            ) from None

    def _open(self, name: str) -> IO[bytes]:
        """Open an object in DVC's cache, or else in the default remote."""
        if not name:
            raise FileNotFoundError
        objects = self._repo.cache.local
        if not objects.exists(name) and self._repo.config["core"].get("remote"):
            objects = self._repo.cloud.get_remote_odb()
        return objects.fs.open(objects.oid_to_path(name), "rb")


def open_repo(root: Path) -> "Repo":
    """The project at `root` as DVC sees it, to be closed after use.

    Raises:
        UserError: DVC cannot read its configuration, or the default remote is none of the remotes,
            at which DVC fails.
    """
    from dvc.config import ConfigError  # noqa: PLC0415 (a second)
    from dvc.repo import Repo  # noqa: PLC0415

    try:
        repo = Repo(str(root))
        default, remotes = repo.config["core"].get("remote"), repo.config["remote"]
    except ConfigError as error:
        raise UserError(f"DVC: {first_line(error)}; `tokenmill doctor` says more.") from None
    if default and default not in remotes:
        repo.close()
        raise UserError(
            f"DVC's default remote, {default}, is none of its remotes; `dvc remote default NAME` "
            "names another."
        )
    return repo


def _is_whole(folder: Path, name: str) -> bool:
    """Whether a file was fetched, and is as it was then, by the MD5 beside it."""
    try:
        recorded = read_record(folder / f"{name}.md5", str)
        with open_regular(folder / name, follow=False) as file:
            return hashlib.file_digest(file, "md5").hexdigest() == recorded
    except (UserError, OSError):
        return False


def _similar(root: Path, rev: str) -> str:
    if rev.startswith("epoch-"):
        return "`dvc repro -sf report` writes the refs of the epochs, and --epoch N needs none."
    names = git.revisions(root)
    near = difflib.get_close_matches(rev, names, n=4, cutoff=0.5) or names[:12]
    return f"near it: {', '.join(near)}."
