"""Which models the page offers: the epochs of this run, DVC's experiments with theirs, folders named by the user."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenmill import paths
from tokenmill.checkpoints.checkpoint import Checkpoint, available
from tokenmill.checkpoints.find import find
from tokenmill.checkpoints.git import experiments
from tokenmill.checkpoints.revisions import epochs_at
from tokenmill.errors import UserError
from tokenmill.training.manifest import MANIFEST

THIS_RUN, EXPERIMENT, FOLDER = "this run", "experiment ", "folder "
"""How the names of models begin."""


@dataclass
class Models:
    """The models of a project, by names for people: `this run`, `experiment blest-jube`, `folder /somewhere`."""

    root: Path
    """Of the project."""
    folders: Sequence[Path] = ()
    """Further models, each a folder with its tokenizer."""
    _found: dict[tuple[str, int | None], Checkpoint] = field(default_factory=dict, repr=False)
    """Of experiments, which take DVC a second to find."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """DVC works for one at a time."""

    def names(self) -> list[str]:
        """What there is now, looked up anew.

        Raises:
            UserError: there is no model at all; says how to get one.
        """
        self._found.clear()
        here = [THIS_RUN] if (self.root / paths.MODEL / MANIFEST).exists() else []
        names = [*here, *self._folders(), *self._experiments()]
        if not names:
            find(self.root)
        return names

    def check(self) -> None:
        """Look whether there is anything to offer, and whether the folders hold models.

        Raises:
            UserError: says what is missing.
        """
        for folder in self.folders:
            find(self.root, model=folder)
        self.names()

    def epochs(self, name: str) -> list[int]:
        """The epochs of a model; empty for a folder, which is one by itself.

        Raises:
            UserError: the model cannot be found or fetched.
        """
        if name == THIS_RUN:
            return list(range(1, len(available(self.root)) + 1))
        if name in self._experiments():
            with self._lock:
                return list(range(1, epochs_at(self.root, name.removeprefix(EXPERIMENT)) + 1))
        return []

    def checkpoint(self, name: str, epoch: int | None) -> Checkpoint:
        """An epoch (else the last) of a model, fetched if it is not here.

        Raises:
            UserError: there is no such model or epoch.
        """
        if name == THIS_RUN:
            return find(self.root, epoch=epoch)
        if name in self._folders():
            return find(self.root, model=Path(name.removeprefix(FOLDER)))
        if name not in self._experiments():  # which keeps what a stranger sends away from git
            raise UserError(f"there is no model {name!r}; there are: {', '.join(self.names())}.")
        with self._lock:
            key = (name, epoch)
            if key not in self._found:
                self._found[key] = find(self.root, rev=name.removeprefix(EXPERIMENT), epoch=epoch)
            return self._found[key]

    def _folders(self) -> list[str]:
        return [f"{FOLDER}{folder}" for folder in self.folders]

    def _experiments(self) -> list[str]:
        try:
            return [f"{EXPERIMENT}{name}" for name in experiments(self.root)]
        except UserError:  # without git there are none
            return []
