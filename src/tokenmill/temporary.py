"""Temporary folders. What a process that was killed left of them, the next one removes: a copy of a
file in a bucket may be as large as the disk is.

Each folder is locked as long as its process lives, and with the process, however that ends, the
system takes the lock off. So a folder without a lock is nobody's. flock locks the folder itself,
also against other threads of this process.
"""

import contextlib
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

PREFIX = "tokenmill-temporary-"

_NAME = re.compile(PREFIX + r"[a-z0-9_]{8}")
"""What `tempfile` makes of the prefix. Nobody else's folder has such a name."""


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield an empty folder where this system keeps temporary files; it goes with the block, and if
    this process is killed, with the next process that makes one."""
    _remove_abandoned()
    folder, lock = _make()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _make() -> tuple[Path, int | None]:
    """A new folder, and the descriptor that holds its lock; None where the system cannot lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = _locked(folder, wait=True)
        if folder.exists():
            return folder, lock
        # Another process has found it before it was locked
        if lock is not None:
            os.close(lock)


@functools.cache
def _remove_abandoned() -> None:
    """Remove the folders of processes that are gone, once in a process."""
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).iterdir():
            if not _NAME.fullmatch(folder.name):
                continue
            lock = _locked(folder, wait=False)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _locked(folder: Path, *, wait: bool) -> int | None:
    """A descriptor with the lock of a folder of this user; None if there is none to have."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        if os.fstat(descriptor).st_uid == os.getuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
    os.close(descriptor)
    return None
