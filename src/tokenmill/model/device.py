"""Choose the device and the precision of a computation.

`choose_compute` only makes the choice; `configure_process` applies it to this process.
`prepare_to_measure` does both.
"""

import contextlib
import ctypes
import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch

from tokenmill.core.errors import UserError
from tokenmill.core.params import DeviceName
from tokenmill.executors.threads import own_cores
from tokenmill.wait_policy import adapt_wait_policy
from tokenmill.words.units import counted

# Constants of glibc's malloc.h
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
"""A file that exists on Linux where NVIDIA's driver is loaded, and names its version."""
NVIDIA_DEVICES = Path("/dev")
"""The folder where each NVIDIA GPU that this system may use is a file `nvidia0`, `nvidia1`, … A
container sees the driver of its host, but only the GPUs that it was given."""
OLDEST_DRIVERS = {"12": 525, "13": 580}
"""The oldest driver of each major version of CUDA (NVIDIA, "CUDA Toolkit Release Notes", minimum
driver version for minor version compatibility)."""
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
        if self.device.type == "mps":
            return "Apple GPU"
        return f"cpu ({counted(torch.get_num_threads(), 'thread')})"

    @property
    def precision_name(self) -> str:
        """The precision as `train.precision` names it."""
        return str(self.precision).removeprefix("torch.")

    @property
    def emulates_precision(self) -> bool:
        """Whether the processor has no instructions for products in this precision. On a CPU they
        take about forty times as long as in float32."""
        if self.device.type != "cpu":
            return False
        if self.precision == torch.bfloat16:
            return not multiplies_bfloat16(self.device)
        # PyTorch has no public name for it
        has = torch.ops.mkldnn._is_mkldnn_fp16_supported()  # noqa: SLF001
        return self.precision == torch.float16 and not has

    def autocast(self) -> AbstractContextManager[object]:
        """A context in which matrix products are computed in `precision`."""
        if self.precision == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.precision)


def choose_device(name: DeviceName) -> torch.device:
    """The device that `runtime.device` names, or with `auto` the best one here."""
    kinds = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    available = [kind for kind, is_there in kinds.items() if is_there]
    chosen = available[0] if name == "auto" else name
    if chosen not in available:
        raise UserError(
            f"runtime.device ({name}) is not available here (torch {torch.__version__} sees: "
            f"{', '.join(available)}); set it to auto."
        )
    return torch.device(chosen)


def unusable_gpu() -> str | None:
    """Why this torch cannot use the NVIDIA GPU of this machine, and what would help, as a part of a
    sentence; None if it can, if there is none, or if CUDA_VISIBLE_DEVICES hides it."""
    is_there = NVIDIA_DRIVER.exists() and any(NVIDIA_DEVICES.glob("nvidia[0-9]*"))
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}
    if torch.cuda.is_available() or is_hidden or not is_there:
        return None
    found = re.search(r"\b(\d{3,4})\.[\d.]+", NVIDIA_DRIVER.read_text("utf-8", errors="replace"))
    driver = found[0] if found else "of unknown version"
    cuda = torch.version.cuda
    if cuda is None:
        why, help_ = "is built for CPUs", "install a PyTorch built for CUDA"
    elif found and int(found[1]) < (oldest := OLDEST_DRIVERS.get(cuda.partition(".")[0], 0)):
        why = f"is built for CUDA {cuda}, which needs driver {oldest} or newer"
        help_ = (
            f"install driver {oldest} or newer, or by `make TORCH=…` a PyTorch for an older CUDA"
        )
    else:
        why, help_ = f"is built for CUDA {cuda} and cannot start it", "see what `nvidia-smi` says"
    return (
        f"torch {torch.__version__} does not see this machine's NVIDIA GPU (driver {driver}): it "
        f"{why}; {help_}"
    )


def choose_compute(device_name: DeviceName, precision: str) -> Compute:
    """The device of this name, and the precision that `train.precision` names; `auto` is the one
    that suits the device best.

    Raises:
        UserError: the device is not available; or `auto` would be the CPU beside an NVIDIA GPU,
            which would take hundreds of times as long.
    """
    if device_name == "auto" and (why := unusable_gpu()):
        raise UserError(
            f"runtime.device (auto): {why} (docs/troubleshooting.md), or set runtime.device to cpu."
        )
    device = choose_device(device_name)
    dtype = _best_precision(device) if precision == "auto" else getattr(torch, precision)
    return Compute(device=device, precision=dtype, exact_float32=precision == "float32")


def prepare_to_measure(device_name: DeviceName, precision: str) -> Compute:
    """Choose the device and the precision in which to measure a model that was trained in
    `precision`, perhaps on another machine, and apply them to this process. A CPU does not emulate
    a precision but takes its own."""
    compute = choose_compute(device_name, precision)
    if compute.emulates_precision:
        compute = choose_compute(device_name, "auto")
    configure_process(compute)
    return compute


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
    computed, how many threads there are and how they wait, and whether freed memory is kept.

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
        prepare_threads()
        _keep_freed_memory()


def prepare_threads() -> None:
    """Compute with no more threads than a container's quota has cores, unless OMP_NUM_THREADS says
    otherwise, and let them follow the load. PyTorch counts the cores of the machine."""
    if "OMP_NUM_THREADS" not in os.environ and own_cores() < torch.get_num_threads():
        torch.set_num_threads(own_cores())
    adapt_wait_policy()


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
