"""`tokenmill profile`: what limits the training in params.yaml, in a sentence, a table and a trace.

A profile divides the time of a step into four kinds. Products (matrices, attention) are limited by
computation, and other operations mostly by memory bandwidth. Gathering and copying tokens is data.
The gaps between operations are Python, autograd and kernel launches.
"""

import argparse
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tokenmill.cli.main import Parser, count
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import read_bytes, write_beside
from tokenmill.display import console, print_columns, say

if TYPE_CHECKING:
    from torch.profiler import profile

    from tokenmill.schema import AllParams

TRACE = Path("reports/trace.json")

OPERATIONS_SHOWN = 12

EXAMPLES = """\
  tokenmill profile                     twenty steps of the training in params.yaml
  tokenmill profile --steps 100 --trace /tmp/trace.json

Open the trace in chrome://tracing or https://ui.perfetto.dev.
"""

TINY_SECONDS = 20e-6
"""Seconds below which the mean time of an operation is mostly that of launching it."""

Kind = Literal["products", "other operations", "data", "gaps"]

LIMITS: dict[Kind, str] = {
    "products": "compute",
    "other operations": "memory bandwidth",
    "data": "data",
    "gaps": "Python",
}
"""The limit for each kind of work."""

_PRODUCTS = re.compile(
    r"aten::(\w*mm|\w*scaled_dot_product\w*)$|gemm|cutlass|xmma|nvjet|wgmma|fmha|flash"
)
_DATA = re.compile(r"aten::(index|index_select|pin_memory|_pin_memory)$|Memcpy HtoD")
_WORK = re.compile(r"aten::|Compiled")


@dataclass(frozen=True)
class Operation:
    """An operation, with the sum of all its calls."""

    name: str
    kind: Kind
    calls: int
    seconds: float


@dataclass(frozen=True)
class Profile:
    """Some steps, and the operations that took their time."""

    steps: int
    seconds: float
    tokens: int
    """The number of tokens that these steps trained on."""
    operations: Sequence[Operation]
    """The operations, the one that took longest first."""
    flops: float
    """Floating-point operations of the model in these steps."""
    product_rate: float
    """Operations per second that one large matrix product reaches on this device."""

    def share(self, kind: Kind) -> float:
        """The fraction of the steps' time that this kind takes, from 0 to 1."""
        if kind == "gaps":
            return max(0.0, 1 - sum(one.seconds for one in self.operations) / self.seconds)
        return sum(one.seconds for one in self.operations if one.kind == kind) / self.seconds

    @property
    def limited_by(self) -> str:
        """The limit for the kind of work that takes longest."""
        largest = max(LIMITS, key=self.share)
        work = [o for o in self.operations if o.kind == "other operations"]
        tiny = sum(o.seconds for o in work) < TINY_SECONDS * sum(o.calls for o in work)
        if largest == "other operations" and tiny:
            return "the launches of many tiny operations"
        return LIMITS[largest]

    @property
    def sentence(self) -> str:
        """A sentence about what limits the run, with the evidence."""
        shares = {kind: self.share(kind) for kind in LIMITS}
        return (
            f"limited by {self.limited_by}: products of matrices and attention take "
            f"{shares['products']:.0%} of a step, other operations "
            f"{shares['other operations']:.0%}, gathering and copying tokens "
            f"{shares['data']:.1%}, the gaps between operations (Python, autograd, launches) "
            f"{shares['gaps']:.0%}"
        )


def add_arguments(parser: Parser) -> None:
    """Declare how many steps to profile, and where the trace goes."""
    parser.add_argument(
        "--steps", type=count, default=20, metavar="N", help="steps to profile (default 20)"
    )
    parser.add_argument(
        "--trace",
        type=Path,
        default=TRACE,
        metavar="FILE",
        help=f"where the trace goes (default {TRACE})",
    )


def run(options: argparse.Namespace) -> None:
    """Profile the training of the project in the current folder."""
    # Otherwise PyTorch's profiler prints lines about itself
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from tokenmill.schema import check_all

    refuse_other(options.trace)
    params = check_all()
    with write_beside(options.trace) as beside:
        beside.touch()  # before the steps, for PyTorch does not say why it cannot write
        result = _profile(params, steps=options.steps, trace=beside)
    console().print(result.sentence)
    _print_rates(result)
    print()
    _print_operations(result)
    say(f"\ntrace: {options.trace}")


def refuse_other(trace: Path) -> None:
    """Refuse to write over a file that is no trace of PyTorch's profiler.

    Raises:
        UserError: it is none.
    """
    if trace.exists() and b'"schemaVersion"' not in read_bytes(trace)[:1024]:
        raise UserError(f"--trace {trace} exists and is no trace; name another file.")


def _profile(params: "AllParams", *, steps: int, trace: Path) -> Profile:
    """Train a fresh model for some steps and write their trace; no checkpoint is read or
    written."""
    from torch.profiler import ProfilerActivity, profile

    from tokenmill.formats.token_file import read_metadata
    from tokenmill.formats.token_row import open_tokens
    from tokenmill.model.config import ModelConfig
    from tokenmill.model.device import choose_compute, configure_process
    from tokenmill.model.sequences import place_tokens
    from tokenmill.planning.benchmark import StepBenchmark, product_rate, synchronize
    from tokenmill.training.compile import STEPS_TO_RECORD, choose_compilation
    from tokenmill.training.schedule import Workload
    from tokenmill.training.size import flops_per_token

    runtime = params.runtime
    metadata = read_metadata(paths.TOKENS)
    config = ModelConfig.of(params.model, metadata.vocab_size)
    compute = choose_compute(runtime.device, params.train.precision)
    configure_process(compute)
    ids, place = place_tokens(
        open_tokens(paths.TOKENS, "train"), runtime.token_placement, compute.device
    )
    work = Workload.on(metadata, config, params.train, params.data.mixture)
    compilation = choose_compilation(runtime.compile, compute, work, place=place)
    benchmark = StepBenchmark(
        ids, work, compute, compilation, micro_batch_size=runtime.micro_batch_size
    )
    for step in range(STEPS_TO_RECORD):  # compile, allocate, record
        benchmark.step(step)
    rate = product_rate(compute)
    on_gpu = compute.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * on_gpu]
    with profile(activities=activities, acc_events=True) as profiler:
        began = time.perf_counter()
        seen = sum(benchmark.step(STEPS_TO_RECORD + step) for step in range(steps))
        synchronize(compute)
        seconds = time.perf_counter() - began
    profiler.export_chrome_trace(str(trace))  # for chrome://tracing or https://ui.perfetto.dev
    operations = _operations(profiler, on_gpu=on_gpu)
    return Profile(steps, seconds, seen, operations, seen * flops_per_token(config), rate)


def _operations(profiler: "profile", *, on_gpu: bool) -> list[Operation]:
    """The operations, each with its own time on the device that does the work, without the
    operations that it calls."""
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


def _print_rates(result: Profile) -> None:
    rate = result.flops / result.seconds
    best = result.product_rate
    step = result.seconds / result.steps * 1000
    speed = result.tokens / result.seconds
    console().print(f"a step takes {step:.3g} ms under the profiler, {speed:,.0f} tokens/s")
    console().print(
        f"that is {rate:.3g} operations a second, {rate / best:.1%} of what one large product "
        f"reaches ({best:.3g})"
    )


def _print_operations(result: Profile) -> None:
    rows = [("share", "ms a step", "calls", "operation")]
    for operation in result.operations[:OPERATIONS_SHOWN]:
        share = f"{operation.seconds / result.seconds:.1%}"
        milliseconds = f"{operation.seconds / result.steps * 1000:.3f}"
        calls = f"{operation.calls / result.steps:.0f}"
        rows.append((share, milliseconds, calls, f"{operation.name[:70]} ({operation.kind})"))
    print_columns(rows, right=(0, 1, 2))
