"""How long a training step takes on this machine, and what it spends the time on.

A fresh model makes the steps; no checkpoint is read or written. A profile divides the time in four. Products (matrices,
attention) are limited by computation, other operations mostly by memory bandwidth; gathering and copying tokens is
data; the gaps between operations are Python, autograd and kernel launches.
"""

import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from tokenmill.core.errors import UserError
from tokenmill.core.files import write_beside
from tokenmill.core.token_file import open_tokens, read_metadata
from tokenmill.core.units import size
from tokenmill.model.config import ModelConfig, ModelParams
from tokenmill.model.device import Compute, choose_compute, configure_process
from tokenmill.model.gpt import build
from tokenmill.model.sequences import Sequences, place_tokens
from tokenmill.model.size import flops_per_token, memory
from tokenmill.training.compile import Compilation, choose_compilation
from tokenmill.training.memory import sequences_that_fit
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.schedule import EpochSampler, Workload
from tokenmill.training.step import train_step

LONG_STEP = 1.5
"""Seconds; a step that takes longer is measured on a part of its sequences."""

STEPS = 5
"""Whole steps that are measured at least; their mean counts, with the short stops that every machine makes."""

MEASURED_SECONDS = 1.0
"""They are measured for at least this long."""


class StepBenchmark:
    """A fresh model, its optimizer and its data, to make training steps with."""

    def __init__(self, ids: Tensor, work: Workload, compute: Compute, compilation: Compilation):
        """Train the model of `work` on `ids`.

        Raises:
            UserError: the ids do not fill a sequence.
        """
        config, train = work.config, work.train
        self._sequences = Sequences(ids, context_length=config.context_length, device=compute.device)
        if not self._sequences.count:
            raise UserError(
                f"model.context_length ({config.context_length}) is longer than the text; take a shorter one."
            )
        per_step = work.sequences_per_step
        self._order = EpochSampler(sequences=self._sequences.count, per_step=per_step, seed=train.seed)
        model = build(config, seed=train.seed).to(compute.device).train()
        self._optimizer = Optimizer(model, train, compute, compiler=compilation.for_update(compute.device))
        self._forward = compilation.of(model)
        self._config, self._train, self.compute, self.compiled = config, train, compute, compilation.on
        self.micro_batch = sequences_that_fit(config, train.batch_size, compute.device)

    def step(self, number: int, *, sequences: int | None = None) -> int:
        """Make step `number`, or a step over its first `sequences`; return its tokens, or 0 if memory ran out."""
        index = self._order.indices_at(number)[:sequences]
        done = train_step(
            self._forward,  # type: ignore[arg-type]
            self._optimizer,
            self._sequences,
            index,
            micro_batch=self.micro_batch,
            learning_rate=self._train.peak,
            gradient_clip=self._train.gradient_clip,
            compute=self.compute,
        )
        return len(index) * self._config.context_length if done else 0


@dataclass(frozen=True)
class Speed:
    """The time of a step on this machine."""

    seconds: float
    device: str
    measured: str
    """What was timed, in words."""


def measure(work: Workload, runtime: RuntimeParams) -> Speed:
    """Time steps of a fresh model on random tokens, over more and more sequences up to a whole step.

    The time of a step is linear in its sequences (the update is the constant part), so if a whole step is too long, the
    last two sizes give its time. Compiled code is made for one size of micro-batch, so there the first size is that.

    Raises:
        UserError: the model does not fit this machine's memory, or the device is not there.
    """
    compute = choose_compute(runtime.device, work.train.precision)
    configure_process(compute)
    _refuse_too_large(work.config, compute)
    sequences, context = work.sequences_per_step, work.config.context_length
    ids = torch.randint(work.config.vocab_size, (sequences * context + 1,), dtype=torch.int32)
    steps = StepBenchmark(ids, work, compute, choose_compilation(runtime.compile, compute.device, work))
    few = first = min(sequences, steps.micro_batch) if steps.compiled else 1
    before, seconds = 0.0, _warm(steps, first)
    while few < sequences and (seconds < LONG_STEP or few == first):
        few, before, seconds = min(2 * few, sequences), seconds, _warm(steps, min(2 * few, sequences))
    if few == sequences:
        many = [seconds] if seconds >= LONG_STEP else []
        while seconds < LONG_STEP and (len(many) < STEPS or sum(many) < MEASURED_SECONDS):
            many.append(_seconds(steps, sequences))
        return Speed(statistics.mean(many), compute.name, f"{len(many)} steps")
    half = few // 2
    each = max(seconds - before, 0.0) / half
    return Speed(
        seconds + each * (sequences - few), compute.name, f"steps over {half} and {few} of {sequences} sequences"
    )


def _refuse_too_large(config: ModelConfig, compute: Compute) -> None:
    parts = memory(config, sequences=1, precision="float32", optimizer="adamw")
    need, there = parts.weights + parts.gradients + parts.optimizer, psutil.virtual_memory().available
    if compute.device.type == "cpu" and need > there:
        raise UserError(
            f"the model takes {size(need)} with gradients and optimizer, and {size(there)} are free here; plan it for "
            "other hardware (`tokenmill plan --hardware A100`)."
        )


def _warm(steps: StepBenchmark, sequences: int) -> float:
    """The time of the second step of this size; the first, which allocates and compiles, counts only if it is long."""
    first = _seconds(steps, sequences)
    return first if first > LONG_STEP and not steps.compiled else _seconds(steps, sequences)


def _seconds(steps: StepBenchmark, sequences: int) -> float:
    synchronize(steps.compute)
    began = time.perf_counter()
    done = steps.step(0, sequences=sequences)
    synchronize(steps.compute)
    if not done:
        raise UserError(f"memory does not hold {sequences} sequences at a time here; set runtime.micro_batch_size.")
    return time.perf_counter() - began


def synchronize(compute: Compute) -> None:
    """Wait until the device has finished its work."""
    if compute.device.type == "cuda":
        torch.cuda.synchronize()


WARM_UP = 3
"""Steps before the profile: compilation, first allocations, optimizer state."""

TINY_SECONDS = 20e-6
"""The cost of operations shorter than this on average is mostly that of launching them."""

Kind = Literal["products", "other operations", "data", "gaps"]

LIMITS: dict[Kind, str] = {
    "products": "compute",
    "other operations": "memory bandwidth",
    "data": "data",
    "gaps": "Python",
}
"""What each kind of work is limited by."""

_PRODUCTS = re.compile(r"aten::(\w*mm|\w*scaled_dot_product\w*)$|gemm|cutlass|xmma|nvjet|wgmma|fmha|flash")
_DATA = re.compile(r"aten::(index|index_select|pin_memory|_pin_memory)$|Memcpy HtoD")
_WORK = re.compile(r"aten::|Compiled")


@dataclass(frozen=True)
class Operation:
    """An operation, with all its calls."""

    name: str
    kind: Kind
    calls: int
    seconds: float


@dataclass(frozen=True)
class Profile:
    """Some steps, and what their time was spent on."""

    steps: int
    seconds: float
    tokens: int
    """Trained on in these steps."""
    operations: Sequence[Operation]
    """The one that took longest comes first."""
    flops: float
    """Floating-point operations of the model in these steps."""
    product_rate: float
    """Operations per second that one large matrix product reaches on this device."""

    def share(self, kind: Kind) -> float:
        """The part of the steps' time that this kind takes, from 0 to 1."""
        if kind == "gaps":
            return max(0.0, 1 - sum(one.seconds for one in self.operations) / self.seconds)
        return sum(one.seconds for one in self.operations if one.kind == kind) / self.seconds

    @property
    def limited_by(self) -> str:
        """What the largest part is limited by."""
        largest = max(LIMITS, key=self.share)
        work = [o for o in self.operations if o.kind == "other operations"]
        tiny = sum(o.seconds for o in work) < TINY_SECONDS * sum(o.calls for o in work)
        return "the launches of many tiny operations" if largest == "other operations" and tiny else LIMITS[largest]

    @property
    def sentence(self) -> str:
        """What limits the run, with the evidence."""
        shares = {kind: self.share(kind) for kind in LIMITS}
        return (
            f"limited by {self.limited_by}: products of matrices and attention take {shares['products']:.0%} of a "
            f"step, other operations {shares['other operations']:.0%}, gathering and copying tokens "
            f"{shares['data']:.1%}, the gaps between operations (Python, autograd, launches) {shares['gaps']:.0%}"
        )


def profile_training(
    *, model: ModelParams, train: TrainParams, runtime: RuntimeParams, tokens: Path, steps: int, trace: Path
) -> Profile:
    """Train a fresh model for some steps and write their trace; no checkpoint is read or written.

    Raises:
        UserError: there are no tokens, or they do not fill a sequence.
    """
    config = ModelConfig.of(model, read_metadata(tokens).vocab_size)
    compute = choose_compute(runtime.device, train.precision)
    configure_process(compute)
    ids, _ = place_tokens(open_tokens(tokens, "train"), runtime.token_placement, compute.device)
    work = Workload(config, train, tokens=len(ids))
    benchmark = StepBenchmark(ids, work, compute, choose_compilation(runtime.compile, compute.device, work))
    for step in range(WARM_UP):
        benchmark.step(step)
    rate = product_rate(compute)
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if compute.device.type == "cuda" else [])
    with profile(activities=activities, acc_events=True) as profiler:
        began = time.perf_counter()
        seen = sum(benchmark.step(WARM_UP + step) for step in range(steps))
        synchronize(compute)
        seconds = time.perf_counter() - began
    with write_beside(trace) as beside:  # for chrome://tracing or https://ui.perfetto.dev
        profiler.export_chrome_trace(str(beside))
    return Profile(steps, seconds, seen, _operations(profiler, compute), seen * flops_per_token(config), rate)


def _operations(profiler: profile, compute: Compute) -> list[Operation]:
    """The operations, each with its own time without those it calls, on the device that does the work."""
    on_gpu = compute.device.type == "cuda"
    found = []
    for row in profiler.key_averages():
        is_work = row.device_type.name == "CUDA" if on_gpu else _WORK.search(row.key)
        microseconds = row.self_device_time_total if on_gpu else row.self_cpu_time_total
        if is_work and microseconds > 0:
            found.append(Operation(row.key, kind_of(row.key), row.count, microseconds / 1e6))
    return sorted(found, key=lambda operation: -operation.seconds)


def kind_of(name: str) -> Kind:
    """The kind of an operation or GPU kernel by its name."""
    return "data" if _DATA.search(name) else "products" if _PRODUCTS.search(name) else "other operations"


def product_rate(compute: Compute) -> float:
    """Operations per second of a product of 1024 x 1024 matrices (on a GPU 8192 x 8192), the best of eight."""
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
