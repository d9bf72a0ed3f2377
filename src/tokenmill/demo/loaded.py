"""The models in memory: the last ones used, shared by everybody who asks; each is read from disk by one thread."""

import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeAlias

from tokenmill.checkpoints.checkpoint import Checkpoint
from tokenmill.checkpoints.writer import Writer
from tokenmill.model.weights import WEIGHTS

Version: TypeAlias = tuple[int, int, int] | None
"""Of a file of weights: inode, size, time of change; None where there is none."""


@dataclass
class Loaded:
    """Writers by checkpoint, `room` of them at the most; the one unused for longest goes first."""

    room: int
    _kept: OrderedDict[tuple[Checkpoint, Version], Future[Writer]] = field(default_factory=OrderedDict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def get(self, checkpoint: Checkpoint) -> Writer:
        """The writer of a checkpoint as it lies on disk now; loaded once, however many threads ask.

        Raises:
            UserError: it cannot be read. The next one who asks tries again.
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
        except BaseException as error:  # whoever waits for it must hear of any
            with self._lock:
                self._kept.pop(key, None)
            writer.set_exception(error)


def _version(checkpoint: Checkpoint) -> Version:
    """A training or checkout puts another file in the same place."""
    try:
        found = (checkpoint.folder / WEIGHTS).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
