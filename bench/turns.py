"""Rivals measured in turns, each in a process of its own: what one sets for its process is no help to another."""

import contextlib
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from unittest import mock

import torch

from bench.stepping import Steps
from tokenmill.openmp import sleep_soon_beside_others

WARM_UP = 3
"""Steps after the first one that do not count either."""


@dataclass(frozen=True)
class Rival:
    """Who takes part."""

    make: Callable[[], Steps]
    """To be called in the rival's process; a partial of a module's function."""
    is_stage: bool
    """Whether its process starts as one of TokenMill's stages does; else as any script."""


@dataclass(frozen=True)
class Timed:
    """A rival's times, or why it has none."""

    first: float = 0.0
    """Seconds of the first step: compilation, first allocations."""
    turns: list[float] = field(default_factory=list)
    """Seconds a step, turn by turn."""
    failed: str | None = None

    @property
    def seconds(self) -> float:
        """A step's, in the median of turns."""
        return statistics.median(self.turns)

    def times(self, first: "Timed") -> float:
        """How many times faster than another, turn by turn."""
        return statistics.median(their / our for their, our in zip(first.turns, self.turns, strict=True))


def measure(rivals: Mapping[str, Rival], *, rounds: int, steps: int, at_a_time: int) -> dict[str, Timed]:
    """Let `at_a_time` rivals at a time do so many steps in turns; one that fails fails alone."""
    timed: dict[str, Timed] = {}
    names = list(rivals)
    for start in range(0, len(names), at_a_time):
        with contextlib.ExitStack() as stack:
            links: dict[str, Connection] = {}
            for name in names[start : start + at_a_time]:  # one after the other, each alone until it is ready
                links[name] = stack.enter_context(_process(rivals[name]))
                timed[name] = _asked(links[name], Timed(), steps)
                said = timed[name].failed or f"ready, after {timed[name].first:.1f} s for its first step"
                print(f"{name}: {said}", file=sys.stderr, flush=True)
            for _ in range(rounds):
                for name, link in links.items():
                    if not timed[name].failed:
                        timed[name] = _asked(link, timed[name], steps)
    return timed


def _asked(link: Connection, so_far: Timed, steps: int) -> Timed:
    """What a rival has done after its next turn, or its first step."""
    try:
        link.send(steps if so_far.first else 0)
        answer = link.recv()
    except (EOFError, OSError):  # killed, as where memory ran out
        answer = "its process ended"
    if isinstance(answer, str):
        return Timed(failed=answer)
    if not so_far.first:
        return Timed(first=answer)
    return Timed(so_far.first, [*so_far.turns, answer])


@contextlib.contextmanager
def _process(rival: Rival) -> Iterator[Connection]:
    """A process that does a rival's steps when it is asked to."""
    context = multiprocessing.get_context("spawn")
    link, far = context.Pipe()
    process = context.Process(target=_work, args=(far, rival.make), daemon=False)
    with mock.patch.dict(os.environ):
        if rival.is_stage:
            sleep_soon_beside_others()
        process.start()
    far.close()
    try:
        yield link
    finally:
        link.close()
        process.join()


def _work(link: Connection, make: Callable[[], Steps]) -> None:
    """Answer each number of steps with the seconds a step; 0 is the first one, warming up after it."""
    with contextlib.suppress(EOFError):
        steps = None
        while True:
            count = link.recv()
            try:
                began = time.perf_counter()
                if steps is None:
                    steps = make()
                steps(count or 1)
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                took = time.perf_counter() - began
                if not count:
                    steps(WARM_UP)
                link.send(took / (count or 1))
            except Exception as error:  # whatever it is, the other rivals go on
                link.send(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
                return
