"""How long the threads of a CPU spin while they wait for each other; set before PyTorch is loaded.

Threads that spin are a third faster while they have their cores to themselves, and half as fast as soon as other
programs want those cores, because they take the time away that the others are waiting for. docs/decisions.md has the
figures.
"""

import contextlib
import os
import time
from pathlib import Path

SPIN_COUNT = 1000
"""Turns of an empty loop before a waiting thread sleeps, beside other programs; OpenMP's own choice is 300,000."""

TRIES, SAMPLES, PAUSE = 10, 5, 0.004
"""Tries, the samples averaged in each, and seconds between samples. The machine counts as free if one try finds it so,
because on every machine something runs for 20 ms now and then."""

LOAD = Path("/proc/loadavg")


def set_wait_policy() -> None:
    """Let waiting threads sleep early where other programs use the cores now, unless GOMP_SPINCOUNT is set already."""
    with contextlib.suppress(OSError, ValueError, IndexError):  # not Linux, and then not GNU's OpenMP either
        free_cores = (os.cpu_count() or 1) - _own_threads()
        if all(_running_elsewhere() >= free_cores + 0.5 for _ in range(TRIES)):
            os.environ.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))


def _running_elsewhere() -> float:
    """Threads of other programs that run or are ready to, averaged over a few samples."""
    running = 0
    for _ in range(SAMPLES):
        time.sleep(PAUSE)
        running += int(LOAD.read_text().split()[3].split("/")[0]) - 1
    return running / SAMPLES


def _own_threads() -> int:
    """Threads that OpenMP will start in this process."""
    return int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
