"""Choose the device and the precision of a computation.

`choose_compute` only makes the choice; `configure_process` applies it to this process.
"""

import contextlib
import ctypes
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from tokenmill.core.errors import UserError

DeviceName = Literal["auto", "cpu", "cuda", "mps"]
"""The values of `runtime.device`."""
# Constants of glibc's malloc.h
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
"""A file that exists on Linux where NVIDIA's driver is loaded."""
OUT_OF_MEMORY = re.compile(
    "out of memory|can't allocate memory|not enough memory|ALLOC_FAILED|could not create a "
    "primitive"
)
"""Matches what PyTorch's allocators, CUDA's libraries and oneDNN say about full memory in a plain
RuntimeError."""


@dataclass(frozen=True)
class Compute:
    """A device and the precision of matrix products on it."""

    device: torch.device
    precision: torch.dtype
    exact_float32: bool = False
    """Whether float32 was asked for by name. Then no product may round its inputs to fewer bits."""

    @property
    def name(self) -> str:
        """The device's name as its maker writes it."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        threads = torch.get_num_threads()
        return (
            f"cpu ({threads} thread{'s' * (threads > 1)})"
            if self.device.type == "cpu"
            else "Apple GPU"
        )

    def autocast(self) -> AbstractContextManager[object]:
        """A context in which matrix products are computed in `precision`."""
        if self.precision == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.precision)


def choose_device(name: DeviceName) -> torch.device:
    """The device that `runtime.device` names, or with `auto` the best one here."""
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    chosen = (
        name if name != "auto" else next(one for one, is_there in available.items() if is_there)
    )
    if not available[chosen]:
        there = ", ".join(one for one, is_there in available.items() if is_there)
        raise UserError(
            f"runtime.device ({name}) is not available here (torch {torch.__version__} sees: "
            f"{there}); set it to auto."
        )
    return torch.device(chosen)


def unused_gpu(device: torch.device) -> str | None:
    """A warning if a CPU computes although the machine has an NVIDIA GPU that this torch cannot
    use; otherwise None."""
    if device.type != "cpu" or not NVIDIA_DRIVER.exists() or torch.cuda.is_available():
        return None
    why = (
        f"its driver may be too old for CUDA {torch.version.cuda}"
        if torch.version.cuda
        else "it is built for CPUs"
    )
    return f"torch {torch.__version__} does not see this machine's NVIDIA GPU ({why})"


def choose_compute(device_name: DeviceName, precision: str) -> Compute:
    """The device of this name, and the precision that `train.precision` names; `auto` is the one
    that suits the device best."""
    device = choose_device(device_name)
    dtype = _best_precision(device) if precision == "auto" else getattr(torch, precision)
    return Compute(device=device, precision=dtype, exact_float32=precision == "float32")


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for products of bfloat16 matrices; emulated ones are
    slower than float32.

    On a CPU oneDNN must be allowed to use them, too: `ONEDNN_MAX_CPU_ISA=AVX2` gives the arithmetic
    of older CPUs.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    processor = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    has = processor.get("avx512_bf16") or processor.get("amx_bf16")
    # PyTorch has no public name for it
    return bool(has) and torch.ops.mkldnn._is_mkldnn_bf16_supported()  # noqa: SLF001


def _best_precision(device: torch.device) -> torch.dtype:
    """The precision in which this device multiplies matrices fastest without harm to training."""
    if multiplies_bfloat16(device):
        return torch.bfloat16
    return torch.float16 if device.type == "cuda" else torch.float32


def configure_process(compute: Compute) -> None:
    """Set what PyTorch and the C library can set only for a whole process: how float32 products are
    computed, and whether freed memory is kept.

    Float32 products are the fastest: TF32 on a GPU, oneDNN instead of MKL on a CPU (twice as fast
    on AMD processors with AVX-512). TF32 rounds, and so does oneDNN on a CPU with bfloat16 tiles
    (AMX); there `exact_float32` keeps the exact products.
    """
    kind = compute.device.type
    rounds = kind == "cuda" or (
        kind == "cpu" and torch.cpu.get_capabilities().get("amx_bf16", False)
    )
    fastest = "high" if kind == "cuda" else "medium"
    torch.set_float32_matmul_precision("highest" if compute.exact_float32 and rounds else fastest)
    if kind == "cpu":
        _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Let the C library keep what a step frees, because the next step needs as much again.

    By default glibc returns large tensors to the system, which zeroes them page by page when they
    are allocated again: ten thousand page faults and a tenth of the time of a step of the default
    run.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        # Older ones refuse the larger value
        if mallopt(M_MMAP_THRESHOLD, 2**30) or mallopt(M_MMAP_THRESHOLD, 2**25):
            mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out, on any device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error)) is not None
