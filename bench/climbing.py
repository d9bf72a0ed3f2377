"""Rungs measured in processes of their own, in turns."""

import contextlib
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from bench.rungs import Size, make

WARM_UP = 3
"""Steps after the first one that do not count either."""


@dataclass(frozen=True)
class Climbed:
    """A rung's times, or why it has none."""

    first: float = 0.0
    """Seconds of the first step: compilation, first allocations."""
    turns: list[float] = field(default_factory=list)
    """Seconds a step, turn by turn."""
    processor: list[float] = field(default_factory=list)
    """The processor's seconds a step, all threads together."""
    failed: str | None = None

    @property
    def seconds(self) -> float:
        """A step's, in the median of turns."""
        return statistics.median(self.turns)

    def times(self, first: "Climbed", *, on_cpu: bool) -> float:
        """How many times faster than another, turn by turn; on a CPU by its own seconds, which no other load takes."""
        ours, theirs = (one.processor if on_cpu else one.turns for one in (self, first))
        return statistics.median(their / our for their, our in zip(theirs, ours, strict=True))


def climb(names: Sequence[str], size: Size, path: Path, *, rounds: int, at_a_time: int) -> dict[str, Climbed]:
    """Measure these rungs on the tokens at `path`, so many of them in turns; a rung that fails fails alone."""
    climbed: dict[str, Climbed] = {}
    for start in range(0, len(names), at_a_time):
        with contextlib.ExitStack() as stack:
            links = {name: stack.enter_context(_process(name, size, path)) for name in names[start : start + at_a_time]}
            for name, link in links.items():  # one after the other: compiling is timed, too
                climbed[name] = _asked(link, Climbed(), size)
                said = climbed[name].failed or f"ready, after {climbed[name].first:.1f} s for its first step"
                print(f"{name}: {said}", file=sys.stderr, flush=True)
            for _ in range(rounds):
                for name, link in links.items():
                    if not climbed[name].failed:
                        climbed[name] = _asked(link, climbed[name], size)
    return climbed


def _asked(link: Connection, so_far: Climbed, size: Size) -> Climbed:
    """What a rung has done after its next turn, or its first step."""
    try:
        link.send(size.steps if so_far.first else 0)
        answer = link.recv()
    except (EOFError, OSError):  # killed, as where memory ran out
        answer = "its process ended"
    if isinstance(answer, str):
        return Climbed(failed=answer)
    seconds, processor = answer
    if not so_far.first:
        return Climbed(first=seconds)
    return Climbed(so_far.first, [*so_far.turns, seconds], [*so_far.processor, processor])


@contextlib.contextmanager
def _process(name: str, size: Size, path: Path) -> Iterator[Connection]:
    """A process that does a rung's steps when it is asked to."""
    context = multiprocessing.get_context("spawn")
    link, far = context.Pipe()
    process = context.Process(target=_work, args=(far, name, size, path), daemon=False)
    process.start()
    far.close()
    try:
        yield link
    finally:
        link.close()
        process.join()


def _work(link: Connection, name: str, size: Size, path: Path) -> None:
    """Answer each number of steps with the seconds a step; 0 is the first one, warming up after it."""
    with contextlib.suppress(EOFError):
        steps = None
        while True:
            count = link.recv()
            try:
                began, used = time.perf_counter(), time.process_time()
                if steps is None:
                    steps = make(name, size, path)
                steps(count or 1)
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                took = time.perf_counter() - began, time.process_time() - used
                if not count:
                    steps(WARM_UP)
                link.send([seconds / (count or 1) for seconds in took])
            except Exception as error:  # whatever it is, the other rungs go on
                link.send(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
                return
