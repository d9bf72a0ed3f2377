"""What training would compute on, in which precision and why, and what its compiler needs."""

import os
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch

from tokenmill.display.units import size
from tokenmill.doctor.finding import Finding, ok, problem, warning
from tokenmill.errors import UserError
from tokenmill.schema import AllParams
from tokenmill.training.device import Compute, choose_compute

OFF = "set runtime.compile to off"


def compute_of(params: AllParams) -> tuple[Finding, Compute | None]:
    """The device that `runtime.device` comes to here."""
    try:
        compute = choose_compute(params.runtime, params.train.precision)
    except UserError as error:
        return problem("device", str(error), "set runtime.device to auto"), None
    precision = str(compute.precision).removeprefix("torch.")
    text = f"{compute.name}{_about(compute)}, {precision}{_why(compute, params.train.precision)}"
    text += ", compiled" if compute.compile else ""
    if compute.device.type == "cpu" and _unused_gpu():
        mend = "install a build of torch for this GPU: https://pytorch.org/get-started/locally"
        return warning(
            "device", f"{text}; there is an NVIDIA GPU that torch {torch.__version__} does not see", mend
        ), compute
    return ok("device", text), compute


def check_compiler(compute: Compute) -> Iterator[Finding]:
    """Whether torch.compile finds a C compiler and Python's headers, where it would be used."""
    if not compute.compile:
        return
    compiler = next((name for name in (os.environ.get("CC", "cc"), "gcc", "clang") if shutil.which(name)), None)
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if compiler is None:
        yield problem("compiler", "torch.compile needs a C compiler, and there is none", f"apt install gcc, or {OFF}")
    elif not headers.exists():
        text = f"torch.compile needs Python's headers, and {headers} is missing"
        yield problem("compiler", text, f"apt install python3-dev, or {OFF}")
    else:
        yield ok("compiler", f"{compiler}, for torch.compile")


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
