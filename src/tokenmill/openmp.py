"""How PyTorch's threads wait for each other on a CPU; to be said before PyTorch is loaded."""

import contextlib
import os
import time
from pathlib import Path

SOON = 1000
"""Turns of an empty loop; OpenMP's own choice is 300,000. docs/decisions.md has what either costs and saves."""


TRIES, LOOKS, PAUSE = 10, 5, 0.004
"""Tries, the looks on whose average one is judged, and seconds between looks. One try that finds room is enough: even
where nobody is at work something runs for 20 ms now and then."""


LOAD = Path("/proc/loadavg")


def sleep_soon_beside_others() -> None:
    """Where other processes want the processors now, let OpenMP's waiting threads sleep soon; a user's wish stands.

    Threads that wait awake are a third quicker as long as they are alone, and half as quick as soon as they are not.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):  # not Linux: nor is it that OpenMP
        room = (os.cpu_count() or 1) - _threads()
        if all(_others_running() >= room + 0.5 for _ in range(TRIES)):
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
