"""Steps on a CPU beside other programs, by how OpenMP's threads wait.

`python -m bench.training.beside` times the default model alone, beside one busy loop, and beside
two a core. Threads spin as libgomp chooses, or always sleep early, or follow the load, as those of
TokenMill do (`tokenmill/wait_policy.py`). Each way has a process of its own, one at a time. The
kernel's scheduler decides a part of these times: trust factors, not tenths.
"""

import argparse
import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from unittest import mock

from bench.harness import TURN_SECONDS, Steps, show_steps
from bench.program import RowFile, command_line
from bench.training import launches
from tokenmill.model import device
from tokenmill.stage import report_errors
from tokenmill.wait_policy import IdleTeam

LOOP = [sys.executable, "-c", "while True: pass"]

SPIN, SLEEP, FOLLOW = WAYS = ("spin", "sleep early", "follow the load")


def steps_of(way: str) -> Steps:
    """The default model's steps, whose threads wait in this way."""
    if way == FOLLOW:
        return launches.steps_of(launches.DEFAULT, "off")
    with mock.patch.object(device, "adapt_wait_policy"):
        steps = launches.steps_of(launches.DEFAULT, "off")
    if way == SLEEP:
        IdleTeam(ctypes.CDLL(None).GOMP_parallel, size=(os.cpu_count() or 1) + 1)
    return steps


@contextlib.contextmanager
def loops(count: int) -> Iterator[None]:
    """So many programs that each want a core."""
    running = [subprocess.Popen(LOOP) for _ in range(count)]
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


def run(options: argparse.Namespace) -> None:
    """Measure, print."""
    file = RowFile(options.json)
    rounds, steps = (1, 2) if options.tiny else (20, 5)
    for count in (1,) if options.tiny else (0, 1, 2 * (os.cpu_count() or 1)):
        ways = {f"{way}, {count}": partial(steps_of, way) for way in WAYS}
        with loops(count):
            show_steps(
                ways,
                "threads, loops beside them",
                file,
                rounds=rounds,
                steps=steps,
                seconds=TURN_SECONDS,
            )


def main() -> None:
    """Measure the steps beside no, one and many programs."""
    options = command_line(__doc__, tiny="a few steps").parse_args()
    report_errors(lambda: run(options))


if __name__ == "__main__":
    main()
