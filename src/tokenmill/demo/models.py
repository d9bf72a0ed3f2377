"""The models that the page offers: this run, experiments, folders."""

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenmill import git
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import read_bytes
from tokenmill.core.params import PARAMS_FILE, parse_yaml
from tokenmill.formats.metrics import TrainMetrics
from tokenmill.formats.records import parse_record
from tokenmill.reports.page import excerpt, settings
from tokenmill.runs.find import FoundModel, available, chosen_epoch, find_model

CHANGES = 3
"""The most changed parameters that are named beside an experiment."""

THIS_RUN = "this run"


@dataclass(frozen=True)
class Offer:
    """A model on the page."""

    name: str
    """`this run`, an experiment's name, or a folder's path."""
    facts: str
    """Its loss, and what an experiment changed; empty if they are not known."""
    epochs: int
    """The number of its epochs; 0 for a folder, which is a single model."""
    rev: str | None = None
    """The experiment."""
    folder: Path | None = None

    @property
    def label(self) -> str:
        """The name and the facts."""
        return " · ".join(filter(None, [self.name, self.facts]))

    def name_of(self, epoch: int) -> str:
        """The name of one of its epochs; 0 for a folder."""
        if self.folder:
            return self.name
        return f"{self.rev}, epoch {epoch}" if self.rev else f"epoch {epoch}"


@dataclass
class Models:
    """The models of a project."""

    root: Path
    """The folder of the project."""
    folders: Sequence[Path] = ()
    """The folders of further models, each with a tokenizer."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """The lock around DVC, which is not thread-safe."""

    def check(self) -> None:
        """Check that there is a model, and that every folder holds one."""
        for folder in self.folders:
            find_model(self.root, model=folder)
        self.offers()

    def offers(self) -> list[Offer]:
        """The models that exist now.

        Raises:
            UserError: there is none.
        """
        folders = [Offer(str(folder), "", 0, folder=folder) for folder in self.folders]
        offers = [*self._this_run(), *folders, *self._experiments()]
        if not offers:
            find_model(self.root)  # says why
        return offers

    def find(self, offer: Offer, epoch: int) -> FoundModel:
        """An epoch of a model (0 for a folder), fetched if it is not here."""
        if offer.folder:
            return find_model(self.root, model=offer.folder)
        if not offer.rev:
            found = available(self.root)
            return found[chosen_epoch(epoch, len(found), "the workspace") - 1]
        with self._lock:
            return find_model(self.root, rev=offer.rev, epoch=epoch)

    def _this_run(self) -> list[Offer]:
        """The run of the workspace, if an epoch of it is finished."""
        file = self.root / paths.TRAIN_METRICS
        measured = _measured(read_bytes(file)) if file.exists() else None
        try:
            epochs = len(available(self.root))
        except UserError:  # damaged; `find` says how
            epochs = 1
        return [Offer(THIS_RUN, _loss(measured), epochs)] if epochs else []

    def _experiments(self) -> list[Offer]:
        """The experiments with a model, by name."""
        try:
            found = {one.name: one for one in git.experiments(self.root)}
        except UserError:  # without git there are none
            return []
        offers = []
        for name, one in found.items():
            epochs, facts = _known(self.root, one.commit)
            offers += [Offer(name, facts, epochs, rev=name)] if epochs else []
        return offers


@functools.lru_cache(1024)
def _known(root: Path, commit: str) -> tuple[int, str]:
    """The number of epochs that an experiment's commit has, and in words its loss and its
    parameters that differ from those of its baseline."""
    measured = _measured(git.content(root, commit, paths.TRAIN_METRICS))
    before, after = (
        _settings(git.content(root, rev, PARAMS_FILE)) for rev in (f"{commit}^", commit)
    )
    changed = [f"{name} {value}" for name, value in after.items() if before.get(name) != value]
    more = [f"{len(changed) - CHANGES} more"] if len(changed) > CHANGES else []
    shown = ", ".join([excerpt(change, 60) for change in changed[:CHANGES]] + more)
    return measured.epoch if measured else 0, " · ".join(filter(None, [_loss(measured), shown]))


def _measured(content: bytes) -> TrainMetrics | None:
    try:
        return parse_record(content, TrainMetrics, source=paths.TRAIN_METRICS, way_out="")
    except UserError:
        return None


def _loss(measured: TrainMetrics | None) -> str:
    loss = measured.val_loss if measured else None
    return "" if loss is None else f"loss {loss:.4f}"


def _settings(params: bytes) -> dict[str, str]:
    try:
        return settings(parse_yaml(params, PARAMS_FILE))
    except UserError:
        return {}
