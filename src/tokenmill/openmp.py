"""How PyTorch's threads wait for each other on a CPU; to be said before PyTorch is loaded."""

import contextlib
import os
import time
from pathlib import Path

SOON = 1000
"""Turns of an empty loop; OpenMP's own choice is 300,000. docs/decisions.md has what either costs and saves."""
LOOKS, PAUSE = 5, 0.004
LOAD = Path("/proc/loadavg")


def sleep_soon_beside_others() -> None:
    """Where other processes want the processors now, let OpenMP's waiting threads sleep soon; a user's wish stands.

    Threads that wait awake are a third quicker as long as they are alone, and half as quick as soon as they are not.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):  # not Linux: nor is it that OpenMP
        if _others_running() + _threads() >= (os.cpu_count() or 1) + 0.5:
            os.environ.setdefault("GOMP_SPINCOUNT", str(SOON))


def _others_running() -> float:
    """Threads of other processes that run or would, on the average of some looks."""
    running = 0
    for _ in range(LOOKS):
        time.sleep(PAUSE)
        running += int(LOAD.read_text().split()[3].split("/")[0]) - 1
    return running / LOOKS


def _threads() -> int:
    """Threads that OpenMP will have."""
    return int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
