"""Measure how long a training step takes on this machine. A fresh model makes the steps; no
checkpoint is read or written."""

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import psutil
import torch
from torch import Tensor

from tokenmill.core.errors import UserError
from tokenmill.formats.token_blocks import CompressedTokens
from tokenmill.formats.token_file import too_short
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import Compute, choose_compute, configure_process, is_out_of_memory
from tokenmill.model.gpt import build
from tokenmill.model.sequences import sequences_anywhere
from tokenmill.training.compile import (
    STEPS_TO_RECORD,
    Compilation,
    RecordedStep,
    choose_compilation,
)
from tokenmill.training.distributed import SINGLE, Group
from tokenmill.training.memory import first_micro_batch
from tokenmill.training.params import RuntimeParams
from tokenmill.training.run import prepare
from tokenmill.training.schedule import Workload
from tokenmill.training.size import memory
from tokenmill.training.step import Batch, MicroBatch, StepResult, batch_at, train_step
from tokenmill.words.units import counted, size

LONG_STEP = 1.5
"""Seconds of a step beyond which it is measured on a part of its sequences."""

STEPS = 5
"""The fewest whole steps that are measured. Their mean counts, because it includes the short stops
of every machine."""

MEASURED_SECONDS = 1.0
"""Seconds for which whole steps are measured at least."""

SMALLER = "take a smaller one"


class TooLargeError(UserError):
    """Memory does not hold a model in training."""

    def __init__(self, config: ModelConfig, why: str):
        """Say so of this model."""
        super().__init__(
            f"a model of {counted(config.n_layer, 'layer')}, {config.n_embd} wide, {why}."
        )


class StepBenchmark:
    """A fresh model, its optimizer and its data, for making training steps."""

    loss: Tensor
    """The loss of the last step, on the device; reading it waits for the step."""

    def __init__(
        self,
        ids: Tensor | CompressedTokens,
        work: Workload,
        compute: Compute,
        compilation: Compilation,
        *,
        micro_batch_size: Literal["auto"] | int,
        group: Group = SINGLE,
    ):
        """Train as `work` says on `ids`, its tokens, with `runtime.micro_batch_size`, together with
        the other processes of `group`.

        Raises:
            UserError: the ids do not fill a sequence.
        """
        length = work.config.context_length
        if problem := too_short(len(ids), length):
            raise UserError(problem)
        model = build(work.config, seed=work.train.seed)
        if not group.shards:
            model.to(compute.device)
        forward, self._optimizer = prepare(model, work.train, compute, group, compilation)
        self._work = work
        self.compute = compute
        self.compilation = compilation
        self.micro_batch = first_micro_batch(micro_batch_size, work, compute, group=group)
        step_on = functools.partial(
            train_step,
            forward,
            self._optimizer,
            sequences_anywhere(ids, context_length=length, device=compute.device),
            micro_batch=MicroBatch(self.micro_batch),
            compute=compute,
        )
        self._step_on: Callable[[Batch], StepResult] = step_on
        if compilation.recorded:
            self._step_on = RecordedStep(
                step_on, sequences=work.largest_step, device=compute.device
            )

    def step(self, number: int, *, sequences: int | None = None) -> int:
        """Make step `number`, or one over its first `sequences`. Return its tokens.

        Raises:
            TooLargeError: memory ran out.
        """
        batch = batch_at(self._work, number)
        batch = replace(batch, index=batch.index[:sequences])
        self._optimizer.set_rates(self._work.train.peak)
        try:
            self.loss = self._step_on(batch).loss
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            at_a_time = min(self.micro_batch, len(batch.index))
            way_out = "set runtime.micro_batch_size lower" if at_a_time > 1 else SMALLER
            raise TooLargeError(
                self._work.config,
                f"runs out of memory here with {counted(at_a_time, 'sequence')} at a time; "
                f"{way_out}",
            ) from None
        return len(batch.index) * self._work.config.context_length


@dataclass(frozen=True)
class Speed:
    """The time of a step on this machine."""

    seconds: float
    device: str
    measured: str
    """What was timed, in words."""


def measure(work: Workload, runtime: RuntimeParams) -> Speed:
    """Time a fresh model's steps on random tokens, over more and more sequences up to a whole step.

    The time of a step is linear in its sequences (the update is the constant part). So if a whole
    step takes too long, the last two sizes give its time. Compiled code is made for one size of
    micro-batch, so with it the first size is that; and only a whole step is recorded.

    Raises:
        TooLargeError: the model does not fit this machine's memory.
        UserError: the device is not there.
    """
    compute = choose_compute(runtime.device, work.train.precision)
    configure_process(compute)
    _refuse_too_large(work, compute)
    try:
        return _measured(work, runtime, compute)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise TooLargeError(
            work.config, f"runs out of memory on {compute.name}; {SMALLER}"
        ) from None


def _measured(work: Workload, runtime: RuntimeParams, compute: Compute) -> Speed:
    sequences = work.largest_step
    context = work.config.context_length
    ids = torch.randint(work.config.vocab_size, (sequences * context + 1,), dtype=torch.int32)
    compilation = choose_compilation(runtime.compile, compute, work)
    steps = StepBenchmark(
        ids.to(compute.device),
        replace(work, tokens=len(ids), stretches=()),
        compute,
        compilation,
        micro_batch_size=runtime.micro_batch_size,
    )
    if compilation.recorded:
        for _ in range(STEPS_TO_RECORD):
            _seconds(steps, sequences)
    few = first = _first_size(steps, sequences)
    before = 0.0
    seconds = _warm(steps, first)
    while few < sequences and (seconds < LONG_STEP or few == first):
        few = min(2 * few, sequences)
        before = seconds
        seconds = _warm(steps, few)
    if few == sequences:
        many = [seconds] if seconds >= LONG_STEP else []
        while seconds < LONG_STEP and (len(many) < STEPS or sum(many) < MEASURED_SECONDS):
            many.append(_seconds(steps, sequences))
        return Speed(statistics.mean(many), compute.name, f"{len(many)} steps")
    half = few // 2
    each = max(seconds - before, 0.0) / half
    return Speed(
        seconds + each * (sequences - few),
        compute.name,
        f"steps over {half} and {few} of {sequences} sequences",
    )


def step_timer(runtime: RuntimeParams) -> Callable[[Workload], float]:
    """A function that gives the seconds of a training's step on this machine, or raises
    TooLargeError.

    Each model is timed once with each batch. Times with fewer sequences would not do for a GPU,
    which they do not fill.
    """
    timed: dict[tuple[str, int], float] = {}

    def seconds(work: Workload) -> float:
        key = (work.config.model_dump_json(), work.largest_step)
        if key not in timed:
            timed[key] = measure(work, runtime).seconds
        return timed[key]

    return seconds


def _refuse_too_large(work: Workload, compute: Compute) -> None:
    parts = memory(work, sequences=1, precision=torch.float32)
    need = parts.fixed
    there = psutil.virtual_memory().available
    if compute.device.type == "cpu" and need > there:
        raise TooLargeError(
            work.config,
            f"takes {size(need)} with gradients and optimizer, and {size(there)} are free here; "
            "plan it for other hardware (`tokenmill plan --hardware A100`)",
        )


def _first_size(steps: StepBenchmark, sequences: int) -> int:
    """The fewest sequences whose steps are timed."""
    if steps.compilation.recorded:
        return sequences
    return min(sequences, steps.micro_batch) if steps.compilation.on else 1


def _warm(steps: StepBenchmark, sequences: int) -> float:
    """The time of the second step of this size. The first step, which allocates and compiles,
    counts only if it is long."""
    first = _seconds(steps, sequences)
    return first if first > LONG_STEP and not steps.compilation.on else _seconds(steps, sequences)


def _seconds(steps: StepBenchmark, sequences: int) -> float:
    synchronize(steps.compute)
    began = time.perf_counter()
    steps.step(0, sequences=sequences)
    synchronize(steps.compute)
    return time.perf_counter() - began


def synchronize(compute: Compute) -> None:
    """Wait until the device has finished its work."""
    if compute.device.type != "cpu":
        torch.accelerator.synchronize()


def product_rate(compute: Compute) -> float:
    """Floating-point operations per second of a product of 1024 x 1024 matrices (on a GPU 8192 x
    8192), the best of eight."""
    side = 8192 if compute.device.type == "cuda" else 1024
    a = torch.randn(side, side, device=compute.device, dtype=compute.precision)
    best = float("inf")
    for _ in range(8):
        synchronize(compute)
        began = time.perf_counter()
        torch.mm(a, a)
        synchronize(compute)
        best = min(best, time.perf_counter() - began)
    return 2 * side**3 / best
