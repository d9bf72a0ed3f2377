"""A stage ends with the DVC that started it, so that it never writes beside the same stage of the next `dvc repro`."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil

LOOK_SECONDS = 0.5
"""How often a process looks whether those above it still run."""


def end_with_dvc() -> None:
    """Get SIGTERM soon after DVC has ended, if DVC is among the processes above this one.

    All between them are watched. Some shells become the command that they run; dash, which is /bin/sh on Debian, stays
    beside it when DVC is killed.
    """
    above = psutil.Process().parents()
    for count, process in enumerate(above, start=1):
        if _is_dvc(process):
            _end_with(above[:count])
            return


def end_with_parent() -> None:
    """Get SIGTERM soon after the parent of this process has ended."""
    _end_with(psutil.Process().parents()[:1])


def _is_dvc(process: psutil.Process) -> bool:
    try:
        return any(Path(word).name in ("dvc", "dvc.exe") for word in process.cmdline())
    except psutil.Error:  # another user's
        return False


def _end_with(others: list[psutil.Process]) -> None:
    def watch() -> None:
        while not any(map(_has_ended, others)):
            time.sleep(LOOK_SECONDS)
        print("the process that started this one is gone", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()


def _has_ended(process: psutil.Process) -> bool:
    """Also if whoever started it has not noticed yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
