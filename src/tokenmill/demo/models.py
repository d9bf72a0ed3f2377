"""The models that the page offers (this run, experiments, folders), and a cache of those that are
in memory."""

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenmill import git
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.params import PARAMS_FILE, parse_yaml
from tokenmill.formats.metrics import TrainMetrics
from tokenmill.formats.records import parse_record
from tokenmill.model.manifest import WEIGHTS
from tokenmill.reports.page import excerpt, settings
from tokenmill.runs.find import FoundModel, available, epochs_at, find_model
from tokenmill.runs.under_way import is_finished
from tokenmill.runs.writer import Writer
from tokenmill.words.units import visible

CHANGES = 3
"""The most changed parameters that are named beside an experiment."""


class Loaded:
    """A cache of at most `room` writers by model. The least recently used one is dropped."""

    def __init__(self, room: int):
        self._load = functools.lru_cache(room)(lambda checkpoint, _version: Writer.load(checkpoint))
        self._lock = threading.Lock()

    def get(self, checkpoint: FoundModel) -> Writer:
        """The writer of a model as it is on disk now. Models are loaded once, and one after the
        other.

        Raises:
            UserError: the model cannot be read. The next call tries again.
        """
        try:
            file = (checkpoint.folder / WEIGHTS).stat()
            # A new run replaces the file in this place by another one
            version = file.st_ino, file.st_size, file.st_mtime_ns
        except OSError:
            version = None
        with self._lock:
            return self._load(checkpoint, version)


# The names of models, or their beginnings
THIS_RUN = "this run"
EXPERIMENT = "experiment "
FOLDER = "folder "


@dataclass
class Models:
    """The models of a project by name: `this run`, `experiment blest-jube`, `folder /somewhere`."""

    root: Path
    """The folder of the project."""
    folders: Sequence[Path] = ()
    """The folders of further models, each with a tokenizer."""
    _found: dict[tuple[str, int | None], FoundModel] = field(default_factory=dict, repr=False)
    """The models of experiments that were already found, because DVC needs a second for each."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """The lock around DVC, which is not thread-safe."""

    def names(self) -> list[str]:
        """The names of the models that exist now.

        Raises:
            UserError: there is none.
        """
        self._found.clear()
        here = [THIS_RUN] if is_finished(self.root) or available(self.root) else []
        names = [*here, *self._folders(), *self._experiments()]
        if not names:
            find_model(self.root)
        return names

    def labels(self) -> list[tuple[str, str]]:
        """The models that exist now, each as the label on the page and the name."""
        return [
            (visible(" · ".join([name.removeprefix(EXPERIMENT), *self._known(name)])), name)
            for name in self.names()
        ]

    def _known(self, name: str) -> list[str]:
        """The loss of a model, and the parameters that an experiment changed."""
        if name.startswith(EXPERIMENT):
            refs = [
                one.ref for one in git.experiments(self.root) if f"{EXPERIMENT}{one.name}" == name
            ]
            commit = git.ask(self.root, "rev-parse", "--verify", refs[0]) if refs else None
            return _facts(self.root, commit.strip()) if commit else []  # else removed meanwhile
        file = self.root / paths.TRAIN_METRICS
        return _loss(file.read_text(encoding="utf-8")) if name == THIS_RUN and file.exists() else []

    def check(self) -> None:
        """Check that there is a model, and that every folder holds one."""
        for folder in self.folders:
            find_model(self.root, model=folder)
        self.names()

    def epochs(self, name: str) -> list[int]:
        """The epochs of a model. They are empty for a folder, which is a single model."""
        if name == THIS_RUN:
            return list(range(1, len(available(self.root)) + 1))
        if name in self._experiments():
            with self._lock:
                return list(range(1, epochs_at(self.root, name.removeprefix(EXPERIMENT)) + 1))
        return []

    def checkpoint(self, name: str, epoch: int | None) -> FoundModel:
        """The given epoch of a model (None: the last one), fetched if it is not here."""
        if name == THIS_RUN:
            return find_model(self.root, epoch=epoch)
        if name in self._folders():
            return find_model(self.root, model=Path(name.removeprefix(FOLDER)))
        if name not in self._experiments():  # nothing that a browser sends reaches git
            raise UserError(f"there is no model {name!r}; there are: {', '.join(self.names())}.")
        with self._lock:
            key = (name, epoch)
            if key not in self._found:
                self._found[key] = find_model(
                    self.root, rev=name.removeprefix(EXPERIMENT), epoch=epoch
                )
            return self._found[key]

    def _folders(self) -> list[str]:
        return [f"{FOLDER}{folder}" for folder in self.folders]

    def _experiments(self) -> list[str]:
        try:
            found = git.experiments(self.root)
            return list(dict.fromkeys(f"{EXPERIMENT}{one.name}" for one in found))
        except UserError:  # without git there are none
            return []


@functools.lru_cache(1024)
def _facts(root: Path, commit: str) -> list[str]:
    """The loss in an experiment's commit, and its parameters that differ from those of its
    baseline."""
    before, after = (
        _settings(git.content(root, rev, PARAMS_FILE)) for rev in (f"{commit}^", commit)
    )
    changed = [f"{name} {value}" for name, value in after.items() if before.get(name) != value]
    more = [f"{len(changed) - CHANGES} more"] if len(changed) > CHANGES else []
    shown = ", ".join([excerpt(change, 60) for change in changed[:CHANGES]] + more)
    return [*_loss(git.content(root, commit, paths.TRAIN_METRICS)), *([shown] if shown else [])]


def _loss(metrics: str | None) -> list[str]:
    try:
        loss = parse_record(
            (metrics or "").encode(), TrainMetrics, source=paths.TRAIN_METRICS, way_out=""
        ).val_loss
    except UserError:
        return []
    return [] if loss is None else [f"loss {loss:.4f}"]


def _settings(params: str | None) -> dict[str, str]:
    try:
        return settings(parse_yaml(params or "{}", PARAMS_FILE))
    except UserError:
        return {}
