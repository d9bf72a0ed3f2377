"""A stage ends with the DVC that started it, so that it never writes beside the same stage of the next `dvc repro`."""

import contextlib
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
    above = list[psutil.Process]()
    with contextlib.suppress(psutil.Error):  # one has just ended, or is another user's
        process = psutil.Process()
        while process := process.parent():
            above.append(process)
            if any(Path(word).name in ("dvc", "dvc.exe") for word in process.cmdline()):
                _end_with(above)
                return


def end_with_parent() -> None:
    """Get SIGTERM soon after the parent of this process has ended."""
    if parent := psutil.Process().parent():
        _end_with([parent])


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
