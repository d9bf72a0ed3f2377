"""What a training step spends its time on: a few real steps under PyTorch's profiler, and what binds them.

Time is sorted into four kinds. Products (matrices, attention) are bound by what the device computes; other operations
mostly by what its memory moves; gathering and copying tokens is data; what is left between operations is Python,
autograd and launching.
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
from tokenmill.planning.benchmark import Trial, wait
from tokenmill.training.compile import choose_compilation
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.schedule import Workload

WARM_UP = 3
"""Steps before the profile: compilation, first allocations, optimizer state."""


TINY_SECONDS = 20e-6
"""Operations that take less than this on average mostly cost their own launching."""


Kind = Literal["products", "other operations", "data", "gaps"]


KINDS: tuple[Kind, ...] = ("products", "other operations", "data", "gaps")


BINDS: dict[Kind, str] = {
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
    """An operation, all its calls together."""

    name: str
    kind: Kind
    calls: int
    seconds: float


@dataclass(frozen=True)
class Profile:
    """Some steps, and where their time went."""

    steps: int
    seconds: float
    tokens: int
    """Trained on in these steps."""
    operations: Sequence[Operation]
    """The longest first."""
    flops: float
    """Operations of the model's products in these steps."""
    product_rate: float
    """Operations a second that one large matrix product reaches on this device."""

    def share(self, kind: Kind) -> float:
        """Of the steps' time."""
        spent = {k: sum(o.seconds for o in self.operations if o.kind == k) for k in KINDS}
        if kind == "gaps":
            return max(0.0, 1 - sum(spent.values()) / self.seconds)
        return spent[kind] / self.seconds

    @property
    def bound_by(self) -> str:
        """What takes the largest share; many tiny operations are bound by their launching, which is Python's side."""
        largest = max(KINDS, key=self.share)
        work = [o for o in self.operations if o.kind == "other operations"]
        tiny = sum(o.seconds for o in work) < TINY_SECONDS * sum(o.calls for o in work)
        return "Python" if largest == "other operations" and tiny else BINDS[largest]

    @property
    def sentence(self) -> str:
        """What binds the run, with the evidence."""
        shares = {kind: self.share(kind) for kind in KINDS}
        return (
            f"bound by {self.bound_by}: products of matrices and attention take {shares['products']:.0%} of a step, "
            f"other operations {shares['other operations']:.0%}, gathering and copying tokens {shares['data']:.1%}, "
            f"and between operations (Python, autograd, launching) pass {shares['gaps']:.0%}"
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
    trial = Trial(ids, config, train, compute, compilation=compilation, per_step=work.sequences_per_step)
    for step in range(WARM_UP):
        trial.step(step)
    rate = product_rate(compute)
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if compute.device.type == "cuda" else [])
    with profile(activities=activities, acc_events=True) as profiler:
        began = time.perf_counter()
        seen = sum(trial.step(WARM_UP + step) for step in range(steps))
        wait(compute)
        seconds = time.perf_counter() - began
    _write_trace(profiler, trace)
    return Profile(steps, seconds, seen, _operations(profiler, compute), seen * flops_per_token(config), rate)


def _operations(profiler: profile, compute: Compute) -> list[Operation]:
    """Operations with the time that is their own, from the device that does the work."""
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
    """Operations a second of products of 1024 x 1024 matrices (on GPUs 8192), the best of a few."""
    size = 8192 if compute.device.type == "cuda" else 1024
    a = torch.randn(size, size, device=compute.device, dtype=compute.precision)
    best = float("inf")
    for _ in range(8):
        wait(compute)
        began = time.perf_counter()
        torch.mm(a, a)
        wait(compute)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


def _write_trace(profiler: profile, path: Path) -> None:
    """For chrome://tracing or https://ui.perfetto.dev."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")
    profiler.export_chrome_trace(str(beside))
    beside.replace(path)
