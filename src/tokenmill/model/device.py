"""What to compute on, in which precision, and where the tokens lie; chosen by itself, said once.

How much memory a training needs, and what to do where it runs out.

A step's sequences go through the model a few at a time (a micro-batch); fewer of them need less memory and give the
same gradient to rounding. So memory that runs out costs speed, not the run.
"""

import contextlib
import ctypes
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import psutil
import torch
from torch import Tensor

from tokenmill.core.errors import UserError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""As glibc's malloc.h has them."""


DeviceName = Literal["auto", "cpu", "cuda", "mps"]
"""What `runtime.device` may be."""

ROOM = 0.5
"""Tokens may take this share of the free memory of a place; the model needs the rest."""


@dataclass(frozen=True)
class Compute:
    """A device and the precision of matrix products on it."""

    device: torch.device
    precision: torch.dtype

    @property
    def name(self) -> str:
        """The device as its maker calls it."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return f"{self.device.type} ({torch.get_num_threads()} threads)" if self.device.type == "cpu" else "Apple GPU"

    def autocast(self) -> AbstractContextManager[object]:
        """Matrix products inside run in `precision`."""
        if self.precision == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.precision)


def choose_device(wish: DeviceName) -> torch.device:
    """The device that `runtime.device` names, or the best there is.

    Raises:
        UserError: the named device is not there.
    """
    have = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    name = wish if wish != "auto" else next(name for name, there in have.items() if there)
    if not have[name]:
        there = ", ".join(name for name, is_there in have.items() if is_there)
        raise UserError(
            f"runtime.device ({name}) is not available here (torch {torch.__version__} sees: {there}); set it to auto."
        )
    return torch.device(name)


def choose_compute(device_name: DeviceName, precision: str) -> Compute:
    """The device of this name, and the precision that `train.precision` names or that suits it best.

    Raises:
        UserError: the device is not available here.
    """
    device = choose_device(device_name)
    dtype = _best_precision(device) if precision == "auto" else getattr(torch, precision)
    _quick_float32(device, exact=precision == "float32")
    if device.type == "cpu":
        _keep_freed_memory()
    return Compute(device=device, precision=dtype)


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for products of bfloat16 matrices; emulated ones are slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    processor = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    return bool(processor.get("avx512_bf16") or processor.get("amx_bf16"))


def _best_precision(device: torch.device) -> torch.dtype:
    """The precision in which this device multiplies matrices fastest, and training loses nothing."""
    if multiplies_bfloat16(device):
        return torch.bfloat16
    return torch.float16 if device.type == "cuda" else torch.float32


def _quick_float32(device: torch.device, *, exact: bool) -> None:
    """Take the quickest products of what stays float32: TF32 on a GPU, oneDNN instead of MKL on a CPU.

    oneDNN is twice as fast as MKL on AMD processors with AVX-512. Where the processor multiplies bfloat16 tiles (AMX)
    it would round to them, so there `exact` keeps MKL; everywhere else it computes in float32. So does a GPU: `exact`
    forgoes TF32.
    """
    rounds = device.type == "cuda" or (device.type == "cpu" and torch.cpu.get_capabilities().get("amx_bf16", False))
    quick = "high" if device.type == "cuda" else "medium"
    torch.set_float32_matmul_precision("highest" if exact and rounds else quick)


def _keep_freed_memory() -> None:
    """Let the C library keep what a step frees, for the next one wants the same again.

    Otherwise glibc gives every larger tensor back, and the system fills the next one with zeros page by page: ten
    thousand page faults a step of the default run, a tenth of its time.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        if mallopt(M_MMAP_THRESHOLD, 2**30) or mallopt(M_MMAP_THRESHOLD, 2**25):  # older ones refuse more
            mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def place_tokens(tokens: np.ndarray, wish: str, device: torch.device) -> tuple[Tensor, str]:
    """Training tokens as a tensor where they are read fastest, and the name of that place.

    `tokens` is a read-only memory map; copies are int32 like the file.
    """
    place = wish if wish != "auto" else _best_place(tokens.nbytes, device)
    if place == "mmap":
        return _as_tensor(tokens), place
    tensor = _as_tensor(np.array(tokens))
    return (tensor.to(device), place) if place == "device" else (tensor, place)


def _best_place(size: int, device: torch.device) -> str:
    if device.type == "cuda" and size < ROOM * torch.cuda.mem_get_info(device)[0]:
        return "device"
    return "memory" if size < ROOM * psutil.virtual_memory().available else "mmap"


def _as_tensor(tokens: np.ndarray) -> Tensor:
    """A tensor over the array's own memory; PyTorch warns of a read-only one, which nobody here writes to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(tokens)


_SIGNS = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED", "could not create a primitive")
"""What PyTorch's allocators, CUDA's libraries and oneDNN say where they raise a plain RuntimeError."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out, on whatever device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)
