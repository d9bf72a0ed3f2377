"""One training step as a function, and contenders timed in turns.

`Steps` runs a number of training steps. `in_turns` times several of them in one process; `measure`
gives each contender a process of its own, so that what one sets for its process does not help
another. In both, whatever else the machine does disturbs all alike, and medians are compared turn
by turn.
"""

import contextlib
import itertools
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from bench.machine import peak_bytes
from bench.program import ROOT, RowFile
from tokenmill.core.params import read_yaml
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import Compute, choose_compute, configure_process
from tokenmill.planning.benchmark import StepBenchmark
from tokenmill.training.compile import Compilation, missing_compiler
from tokenmill.training.distributed import SINGLE, Group
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.schedule import Workload

Steps = Callable[[int], None]

TURN_SECONDS = 15.0
"""Seconds of turns that a contender gets on a GPU, which is rented."""

READ_EVERY = 10
"""Steps between two readings of the loss, as `train.log_every_steps` has it."""


def here() -> torch.device:
    """CUDA, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def section(name: str, **changes: Any) -> dict[str, Any]:
    """A section of this project's params.yaml, with changes; a dictionary inside is merged too.

    Benchmarks start from random weights, so `model.start_from` is left out.
    """
    values = read_yaml(ROOT / "params.yaml")[name]
    values.pop("start_from", None)
    return values | {k: values[k] | v if isinstance(v, dict) else v for k, v in changes.items()}


def compute_for(precision: str) -> Compute:
    """What TokenMill chooses on this machine, applied to this process."""
    compute = choose_compute(RuntimeParams.model_validate(section("runtime")).device, precision)
    configure_process(compute)
    return compute


def for_long_runs(device: torch.device) -> Compilation:
    """Compiled on a GPU, as a run of some length is; on a CPU as most runs are, not."""
    return Compilation(device.type == "cuda" and not missing_compiler(device), "a long run")


def train_params(**changes: Any) -> TrainParams:
    """The section `train` of the default run, with changes."""
    return TrainParams.model_validate(section("train", **changes))


def tokenmill_steps(
    config: ModelConfig,
    train: TrainParams,
    compute: Compute,
    ids: np.ndarray,
    *,
    compilation: Compilation,
    group: Group = SINGLE,
) -> Steps:
    """A fresh model on this device, ready to train on `ids` step by step, over and over, together
    with the other processes of `group`."""
    benchmark = StepBenchmark(
        torch.from_numpy(ids.astype(np.int32)).to(compute.device),
        Workload(config, train, len(ids)),
        compute,
        compilation,
        micro_batch_size=train.batch_size,
        group=group,
    )
    numbers = itertools.count()

    def steps(count: int) -> None:
        for number in itertools.islice(numbers, count):
            benchmark.step(number)
            if (number + 1) % READ_EVERY == 0:
                benchmark.loss.item()

    return steps


WARM_UP = 3
"""Steps after the first one that do not count either."""


Contender = Callable[[], Steps]
"""Who takes part: makes its steps in a process of its own. A partial of a module's function."""


@dataclass(frozen=True)
class Timed:
    """A contender's times, or why it has none."""

    first: float = 0.0
    """Seconds of the first step: compilation, first allocations."""
    turns: list[float] = field(default_factory=list)
    """Seconds a step, turn by turn."""
    peak_bytes: int = 0
    """The most memory that its process had, as `machine.peak_bytes` tells it."""
    failed: str | None = None

    @property
    def seconds(self) -> float:
        """A step's, in the median of turns."""
        return statistics.median(self.turns)

    def times(self, first: "Timed") -> float:
        """How many times faster than another: turn by turn, if both had as many."""
        if len(first.turns) != len(self.turns):
            return first.seconds / self.seconds
        return statistics.median(
            their / our for their, our in zip(first.turns, self.turns, strict=True)
        )

    def row(self, first: "Timed | None", *, tokens: int | None = None) -> dict[str, Any]:
        """The figures, or why there are none.

        Args:
            first: the contender that all are compared with, if there is one.
            tokens: those of a step, if their rate is wanted.
        """
        if self.failed:
            return {"left out": self.failed}
        row: dict[str, Any] = {"seconds a step": float(f"{self.seconds:.4g}")}
        if tokens:
            row["tokens/s"] = round(tokens / self.seconds)
        if first:
            row["times the first"] = round(self.times(first), 3)
        return row | {"first step, s": round(self.first, 1)}


def first_that_ran(timed: Iterable[Timed]) -> Timed | None:
    """The contender that all are compared with; None if all failed."""
    return next((one for one in timed if not one.failed), None)


def in_turns(
    contenders: Mapping[str, Steps], *, rounds: int, steps: int, warm_up: int
) -> dict[str, Timed]:
    """Let each do some steps in this process, in turns."""
    for go in contenders.values():
        go(warm_up)
    took: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, go in contenders.items():
            took[name].append(_seconds(go, steps) / steps)
    return {name: Timed(turns=each) for name, each in took.items()}


def _seconds(go: Steps, steps: int) -> float:
    wait()
    began = time.perf_counter()
    go(steps)
    wait()
    return time.perf_counter() - began


def wait() -> None:
    """Until a GPU, if there is one, has done its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(
    contenders: Mapping[str, Contender],
    *,
    rounds: int,
    steps: int,
    at_a_time: int,
    seconds: float = math.inf,
    done: Callable[[dict[str, Timed]], None] | None = None,
) -> dict[str, Timed]:
    """Let `at_a_time` contenders at a time do so many steps in turns; one that fails fails alone.

    After `seconds` of turns a group has had enough of them. `done` gets all times so far after
    every group, so that they are kept if this process is ended.
    """
    timed: dict[str, Timed] = {}
    names = list(contenders)
    for start in range(0, len(names), at_a_time):
        with contextlib.ExitStack() as stack:
            links: dict[str, Connection] = {}
            # One after the other, each alone until it is ready
            for name in names[start : start + at_a_time]:
                links[name] = stack.enter_context(_process(contenders[name]))
                timed[name] = _asked(links[name], Timed(), steps)
                said = (
                    timed[name].failed
                    or f"ready, after {timed[name].first:.1f} s for its first step"
                )
                print(f"{name}: {said}", file=sys.stderr, flush=True)
            began = time.perf_counter()
            for number in range(rounds):
                if number and time.perf_counter() - began > seconds:
                    break
                for name, link in links.items():
                    if not timed[name].failed:
                        timed[name] = _asked(link, timed[name], steps)
        if done:
            done(timed)
    return timed


def show_steps(
    contenders: Mapping[str, Contender],
    column: str,
    file: RowFile,
    *,
    rounds: int,
    steps: int,
    at_a_time: int = 1,
    seconds: float = math.inf,
    tokens: int | None = None,
) -> None:
    """Time contenders as `measure` does. Each gets a row as soon as its time is there, compared
    with the first one that ran.

    Args:
        column: what their names are.
        tokens: those of a step, if their rate is wanted.
    """
    shown: set[str] = set()

    def show(timed: dict[str, Timed]) -> None:
        first = first_that_ran(timed.values())
        for name in [name for name in timed if name not in shown]:
            shown.add(name)
            file.show({column: name} | timed[name].row(first, tokens=tokens))

    measure(contenders, rounds=rounds, steps=steps, at_a_time=at_a_time, seconds=seconds, done=show)


def _asked(link: Connection, so_far: Timed, steps: int) -> Timed:
    """What a contender has done after its next turn, or its first step."""
    try:
        link.send(steps if so_far.first else 0)
        answer = link.recv()
    except (EOFError, OSError):  # killed, as where memory ran out
        answer = "its process ended"
    if isinstance(answer, str):
        return Timed(failed=answer)
    seconds, peak = answer
    if not so_far.first:
        return Timed(first=seconds, peak_bytes=peak)
    return Timed(so_far.first, [*so_far.turns, seconds], peak_bytes=peak)


@contextlib.contextmanager
def _process(contender: Contender) -> Iterator[Connection]:
    """A process that does a contender's steps when it is asked to."""
    context = multiprocessing.get_context("spawn")
    link, far = context.Pipe()
    process = context.Process(target=_work, args=(far, contender), daemon=False)
    process.start()
    far.close()
    try:
        yield link
    finally:
        link.close()
        process.join()


def _work(link: Connection, make: Contender) -> None:
    """Answer each number of steps with the seconds a step and the most memory so far; 0 is the
    first step, warming up after it."""
    with contextlib.suppress(EOFError):
        steps = None
        while True:
            count = link.recv()
            try:
                began = time.perf_counter()
                if steps is None:
                    steps = make()
                steps(count or 1)
                wait()
                took = time.perf_counter() - began
                if not count:
                    steps(WARM_UP)
                link.send((took / (count or 1), peak_bytes()))
            except Exception as error:  # whatever it is, the other contenders go on
                link.send(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
                return
