"""One training step as a function, and contenders timed in turns.

`Steps` runs a number of training steps. `in_turns` times several of them in one process; `measure`
gives each contender a process of its own, so that what one sets for its process does not help
another. In both, whatever else the machine does disturbs all alike, and medians are compared turn
by turn.
"""

import argparse
import contextlib
import itertools
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from ruamel.yaml import YAML

from bench.machine import peak_bytes
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import Compute, choose_compute, configure_process
from tokenmill.planning.benchmark import StepBenchmark
from tokenmill.process import set_wait_policy
from tokenmill.stage import report_errors
from tokenmill.training.compile import Compilation, missing_compiler
from tokenmill.training.distributed import SINGLE, Group
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.schedule import Workload

Steps = Callable[[int], None]

TURN_SECONDS = 15.0
"""Seconds of turns that a contender gets on a GPU, which is rented."""

READ_EVERY = 10
"""Steps between two readings of the loss, as `train.log_every_steps` has it."""

ROOT = Path(__file__).resolve().parent.parent


def environment() -> dict[str, str]:
    """This process's, in which Python finds the checkout, then what PYTHONPATH has now."""
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def here() -> torch.device:
    """CUDA, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class RowFile:
    """A file of rows that is whole after each of them; without a path nothing is written."""

    def __init__(self, path: Path | None):
        self._path = path
        self.rows: list[dict[str, Any]] = []

    def add(self, *rows: dict[str, Any]) -> None:
        """Write these rows behind the others."""
        self.replace([*self.rows, *rows])

    def show(self, row: dict[str, Any]) -> None:
        """Print a row and write it behind the others."""
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
        self.add(row)

    def replace(self, rows: list[dict[str, Any]]) -> None:
        """Write these rows instead of the others."""
        self.rows = rows
        if self._path:
            beside = self._path.with_suffix(".tmp")
            beside.write_text(json.dumps(rows, indent=2) + "\n")
            beside.replace(self._path)


def exponents(
    rows: list[dict[str, Any]], of: Sequence[str], *, size: str, took: str
) -> dict[tuple[Any, ...], float]:
    """The power of `size` with which `took` grows, as the slope of a line through the logarithms,
    for all rows that have the same in the columns `of`. Rows without `took` do not count, nor does
    a single one."""
    points: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for row in rows:
        if took in row:
            curve = points.setdefault(tuple(row[name] for name in of), [])
            curve.append((row[size], row[took]))
    found = {}
    for key, curve in points.items():
        if len(curve) > 1:
            x, y = np.log(curve).T
            found[key] = float(np.polyfit(x, y, 1)[0])
    return found


def section(name: str, **changes: Any) -> dict[str, Any]:
    """A section of this project's params.yaml, with changes; a dictionary inside is merged too.

    Benchmarks start from random weights, so `model.start_from` is left out.
    """
    values = YAML(typ="safe").load(ROOT / "params.yaml")[name]
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


@dataclass(frozen=True)
class Contender:
    """Who takes part."""

    make: Callable[[], Steps]
    """To be called in the contender's process; a partial of a module's function."""
    is_stage: bool
    """Whether its process starts as one of TokenMill's stages does; else as any script."""


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


def tiny_command(about: str | None, tiny: str, work: Callable[[argparse.Namespace], None]) -> None:
    """Read the arguments of a benchmark that has only `--tiny`, which does `tiny`, and `--json`;
    then do `work`."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help=tiny)
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    report_errors(lambda: work(parser.parse_args()))


def measure_alone(
    contenders: Mapping[str, Contender],
    column: str,
    file: RowFile,
    *,
    rounds: int,
    steps: int,
    seconds: float = math.inf,
) -> None:
    """Time one contender after the other, as `measure` does. Each gets a line and a row, compared
    with the first one, as soon as its time is there; `column` is what their names are."""

    def show(timed: dict[str, Timed]) -> None:
        first = next(iter(timed.values()))
        name, one = list(timed.items())[-1]
        if one.failed:
            print(f"{name:18} left out: {one.failed}", flush=True)
            file.add({column: name, "left out": one.failed})
            return
        times = math.nan if first.failed else round(one.times(first), 3)
        print(
            f"{name:18} {one.seconds * 1e3:8.2f} ms a step, {times:6.3f} times the first; its "
            f"first {one.first:.1f} s",
            flush=True,
        )
        row = {"seconds a step": one.seconds, "times the first": times, "first step, s": one.first}
        file.add({column: name} | row)

    measure(contenders, rounds=rounds, steps=steps, at_a_time=1, seconds=seconds, done=show)


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
    process = context.Process(target=_work, args=(far, contender.make), daemon=False)
    with mock.patch.dict(os.environ):
        if contender.is_stage:
            set_wait_policy()
        process.start()
    far.close()
    try:
        yield link
    finally:
        link.close()
        process.join()


def _work(link: Connection, make: Callable[[], Steps]) -> None:
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
