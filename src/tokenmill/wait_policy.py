"""How OpenMP's threads wait for one another: they spin while they have their cores to themselves,
and sleep early while other programs want those cores.

On Linux PyTorch computes with GNU's OpenMP. A thread that waits there turns an empty loop 300,000
times before it sleeps, but only 100 times while the process has more OpenMP threads than cores
(libgomp, `do_spin` in config/linux/wait.h). So a second team of threads, which does nothing, lets
all of them sleep early until it ends. Results do not depend on it. docs/decisions.md has the
figures.
"""

import ctypes
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tokenmill.core.files import read_bytes

THREADS = Path("/proc/self/task")
"""Linux keeps a folder in it for each thread of this process."""

LOOK_SECONDS = 0.5
"""Seconds between two looks at how long threads waited for a core."""

BUSY = 0.1
"""Others want the cores if this process's threads, taken together, waited for one during more than
this part of the time. Others are programs, and also threads of this process that do not compute,
while they write a checkpoint."""

QUIET_LOOKS = 20
"""So many looks in a row find the cores free before threads spin again: to sleep early costs a
twentieth to a quarter of the speed beside nobody, to spin may cost nine tenths beside others."""

DECIDED_BY_USER = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
"""Variables by which a user says how threads wait; with one of them set, nothing is changed."""


@functools.cache
def adapt_wait_policy() -> None:
    """From now on, let PyTorch's threads sleep early while other programs want the cores.

    Nothing changes where it has one thread, or leaves more than half of the machine's cores to
    others; where DECIDED_BY_USER has the word; on other systems; and without GNU's OpenMP.
    """
    if sys.platform != "linux" or any(name in os.environ for name in DECIDED_BY_USER):
        return
    cores, threads = len(os.sched_getaffinity(0)), torch.get_num_threads()
    start = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
    if start and threads > 1 and cores <= 2 * threads and core_waits():
        size = max(2, cores - threads + 2)  # one more in all than there are cores
        policy = WaitPolicy(functools.partial(IdleTeam, start, size=size))
        threading.Thread(target=policy.follow, name="wait policy", daemon=True).start()


class IdleTeam:
    """A team of OpenMP threads that does nothing. It is there from the beginning until `end`."""

    def __init__(self, start: Callable[..., object], *, size: int):
        """Make the team with `start`, libgomp's GOMP_parallel. One of its threads is Python's, for
        a team belongs to the thread that made it."""
        self._start = start
        self._size = size
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._stand_by, name="idle team", daemon=True)
        self._thread.start()

    def _stand_by(self) -> None:
        self._start(ctypes.CDLL(None).getpid, None, self._size, 0)
        self._ended.wait()

    def end(self) -> None:
        """Let the team go."""
        self._ended.set()
        self._thread.join()


class WaitPolicy:
    """Keeps an idle team while other programs want the cores, and until the first look."""

    def __init__(self, make_team: Callable[[], IdleTeam]):
        self._make_team = make_team
        self._team: IdleTeam | None = make_team()
        self._quiet = QUIET_LOOKS - 1

    def follow(self) -> None:
        """Look at the load for as long as the process runs."""
        before, began = core_waits(), time.monotonic()
        while True:
            time.sleep(LOOK_SECONDS)
            now, ended = core_waits(), time.monotonic()
            waited = sum(seconds - before.get(thread, 0) for thread, seconds in now.items())
            self.decide(waited / (ended - began))
            before, began = now, ended

    def decide(self, waited: float) -> None:
        """Make the team or let it go. Threads `waited` for a core during this part of the time, all
        of them together."""
        self._quiet = 0 if waited > BUSY else self._quiet + 1
        if self._team is None and not self._quiet:
            self._team = self._make_team()
        elif self._team and self._quiet >= QUIET_LOOKS:
            self._team.end()
            self._team = None


def core_waits() -> dict[str, float]:
    """The seconds that each thread of this process was ready to run but had no core; empty where
    the kernel does not count them."""
    waits = {}
    for thread in THREADS.glob("*/schedstat"):
        try:
            waits[thread.parent.name] = int(read_bytes(thread).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):  # it has ended, or is no number
            continue
    return waits
