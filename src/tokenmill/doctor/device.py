"""What training would compute on, in which precision and why, and what its compiler needs."""

from collections.abc import Iterator
from pathlib import Path

import torch

from tokenmill.display.units import size
from tokenmill.doctor.finding import Finding, ok, problem, warning
from tokenmill.errors import UserError
from tokenmill.schema import AllParams
from tokenmill.training.compilation import lacks
from tokenmill.training.device import Compute, choose_compute
from tokenmill.training.params import RuntimeParams

OFF = "set runtime.compile to off"


def compute_of(params: AllParams) -> tuple[Finding, Compute | None]:
    """The device that `runtime.device` comes to here."""
    try:
        compute = choose_compute(params.runtime, params.train.precision)
    except UserError as error:
        return problem("device", str(error), "set runtime.device to auto"), None
    precision = str(compute.precision).removeprefix("torch.")
    text = f"{compute.name}{_about(compute)}, {precision}{_why(compute, params.train.precision)}"
    if compute.device.type == "cpu" and _unused_gpu():
        mend = "install a build of torch for this GPU: https://pytorch.org/get-started/locally"
        return warning(
            "device", f"{text}; there is an NVIDIA GPU that torch {torch.__version__} does not see", mend
        ), compute
    return ok("device", text), compute


def check_compiler(runtime: RuntimeParams, compute: Compute) -> Iterator[Finding]:
    """Whether torch.compile finds what it needs, where `runtime.compile` wants it or a GPU gains much by it."""
    wanted = runtime.compile == "on"
    if not wanted and (runtime.compile == "off" or compute.device.type != "cuda"):
        return
    missing = lacks(compute.device)
    if missing is None:
        yield ok("compiler", "what torch.compile needs is there")
    else:
        text = f"torch.compile needs {missing}, which is not there"
        mend = f"apt install g++ python3-dev, or {OFF}"
        yield problem("compiler", text, mend) if wanted else warning("compiler", f"{text}; steps will be slower", mend)


def _about(compute: Compute) -> str:
    if compute.device.type != "cuda":
        return ""
    major, minor = torch.cuda.get_device_capability(compute.device)
    free, total = torch.cuda.mem_get_info(compute.device)
    several = f"{torch.cuda.device_count()} of them, " if torch.cuda.device_count() > 1 else ""
    return f" ({several}capability {major}.{minor}, {size(free)} of {size(total)} free)"


def _why(compute: Compute, wish: str) -> str:
    """Why matrix products run in this precision."""
    if wish != "auto":
        return " (train.precision)"
    if compute.device.type == "cpu":
        has = compute.precision == torch.bfloat16
        return " (the processor multiplies it)" if has else " (no AVX512_BF16 or AMX in this processor)"
    if compute.device.type == "cuda" and compute.precision == torch.float16:
        return " (this GPU has no bfloat16)"
    return ""


def _unused_gpu() -> bool:
    """Whether there is a driver of NVIDIA's, but no CUDA in PyTorch."""
    return Path("/proc/driver/nvidia/version").exists() and not torch.cuda.is_available()
