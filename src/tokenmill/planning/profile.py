"""What a training step spends its time on: a few real steps under PyTorch's profiler, and what limits them.

The time has four parts. Products (matrices, attention) are limited by computation, other operations mostly by memory
bandwidth; gathering and copying tokens is data; the gaps between operations are Python, autograd and kernel launches.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch.profiler import ProfilerActivity, profile

from tokenmill.core.token_file import open_tokens, read_metadata
from tokenmill.model.config import ModelConfig, ModelParams
from tokenmill.model.device import Compute, choose_compute, configure_process
from tokenmill.model.sequences import place_tokens
from tokenmill.model.size import flops_per_token
from tokenmill.planning.benchmark import StepBenchmark, synchronize
from tokenmill.training.compile import choose_compilation
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.schedule import Workload

WARM_UP = 3
"""Steps before the profile: compilation, first allocations, optimizer state."""

TINY_SECONDS = 20e-6
"""The cost of operations shorter than this on average is mostly that of launching them."""

Kind = Literal["products", "other operations", "data", "gaps"]

KINDS: tuple[Kind, ...] = ("products", "other operations", "data", "gaps")

LIMITS: dict[Kind, str] = {
    "products": "compute",
    "other operations": "memory bandwidth",
    "data": "data",
    "gaps": "Python",
}

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
        spent = {k: sum(o.seconds for o in self.operations if o.kind == k) for k in KINDS}
        if kind == "gaps":
            return max(0.0, 1 - sum(spent.values()) / self.seconds)
        return spent[kind] / self.seconds

    @property
    def limited_by(self) -> str:
        """What the largest part is limited by."""
        largest = max(KINDS, key=self.share)
        work = [o for o in self.operations if o.kind == "other operations"]
        tiny = sum(o.seconds for o in work) < TINY_SECONDS * sum(o.calls for o in work)
        return "the launches of many tiny operations" if largest == "other operations" and tiny else LIMITS[largest]

    @property
    def sentence(self) -> str:
        """What limits the run, with the evidence."""
        shares = {kind: self.share(kind) for kind in KINDS}
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
    compilation = choose_compilation(runtime.compile, compute.device, work)
    benchmark = StepBenchmark(ids, config, train, compute, compilation=compilation, per_step=work.sequences_per_step)
    for step in range(WARM_UP):
        benchmark.step(step)
    rate = product_rate(compute)
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if compute.device.type == "cuda" else [])
    with profile(activities=activities, acc_events=True) as profiler:
        began = time.perf_counter()
        seen = sum(benchmark.step(WARM_UP + step) for step in range(steps))
        synchronize(compute)
        seconds = time.perf_counter() - began
    _write_trace(profiler, trace)
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
    if _DATA.search(name):
        return "data"
    return "products" if _PRODUCTS.search(name) else "other operations"


def product_rate(compute: Compute) -> float:
    """Operations per second of a product of 1024 x 1024 matrices (on a GPU 8192 x 8192), the best of eight."""
    size = 8192 if compute.device.type == "cuda" else 1024
    a = torch.randn(size, size, device=compute.device, dtype=compute.precision)
    best = float("inf")
    for _ in range(8):
        synchronize(compute)
        began = time.perf_counter()
        torch.mm(a, a)
        synchronize(compute)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


def _write_trace(profiler: profile, path: Path) -> None:
    """Write the trace for chrome://tracing or https://ui.perfetto.dev."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")
    profiler.export_chrome_trace(str(beside))
    beside.replace(path)
