"""The models that the page offers (this run, experiments, folders), and a cache of those in memory."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.git import experiments
from tokenmill.model.manifest import MANIFEST, WEIGHTS
from tokenmill.models.find import Checkpoint, available, epochs_at, find
from tokenmill.models.writer import Writer

Version: TypeAlias = tuple[int, int, int] | None
"""Of a weights file: inode, size, modification time; None if there is no file."""


@dataclass
class Loaded:
    """A cache of at most `room` writers by checkpoint; it drops the least recently used."""

    room: int
    _kept: OrderedDict[tuple[Checkpoint, Version], Future[Writer]] = field(default_factory=OrderedDict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def get(self, checkpoint: Checkpoint) -> Writer:
        """The writer of a checkpoint as it is on disk now; loaded once, however many threads ask.

        Raises:
            UserError: it cannot be read. The next call tries again.
        """
        key = (checkpoint, _version(checkpoint))
        with self._lock:
            writer, first = self._kept.get(key), key not in self._kept
            if writer is None:
                writer = self._kept[key] = Future()
            self._kept.move_to_end(key)
            while len(self._kept) > self.room:
                self._kept.popitem(last=False)
        if first:
            self._load(key, writer)
        return writer.result()

    def _load(self, key: tuple[Checkpoint, Version], writer: Future[Writer]) -> None:
        try:
            writer.set_result(Writer.load(key[0]))
        except BaseException as error:  # every waiting thread gets it
            with self._lock:
                self._kept.pop(key, None)
            writer.set_exception(error)


def _version(checkpoint: Checkpoint) -> Version:
    """Another run or checkout puts another file in the same place."""
    try:
        found = (checkpoint.folder / WEIGHTS).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


THIS_RUN, EXPERIMENT, FOLDER = "this run", "experiment ", "folder "
"""The names of models, or their beginnings."""


@dataclass
class Models:
    """The models of a project by their names: `this run`, `experiment blest-jube`, `folder /somewhere`."""

    root: Path
    """Of the project."""
    folders: Sequence[Path] = ()
    """Further models, each a folder with its tokenizer."""
    _found: dict[tuple[str, int | None], Checkpoint] = field(default_factory=dict, repr=False)
    """Checkpoints of experiments, which DVC needs a second to find."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """DVC is not thread-safe."""

    def names(self) -> list[str]:
        """The models that exist now.

        Raises:
            UserError: there is none.
        """
        self._found.clear()
        here = [THIS_RUN] if (self.root / paths.MODEL / MANIFEST).exists() else []
        names = [*here, *self._folders(), *self._experiments()]
        if not names:
            find(self.root)
        return names

    def check(self) -> None:
        """Check that there is a model, and that every folder holds one.

        Raises:
            UserError: it names what is missing.
        """
        for folder in self.folders:
            find(self.root, model=folder)
        self.names()

    def epochs(self, name: str) -> list[int]:
        """The epochs of a model; empty for a folder, which is a single model.

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
        """An epoch of a model (None: the last), fetched if it is not here.

        Raises:
            UserError: there is no such model or epoch.
        """
        if name == THIS_RUN:
            return find(self.root, epoch=epoch)
        if name in self._folders():
            return find(self.root, model=Path(name.removeprefix(FOLDER)))
        if name not in self._experiments():  # nothing that a browser sends reaches git
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
