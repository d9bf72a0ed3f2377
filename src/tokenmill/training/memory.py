"""How much memory a training needs, and what to do where it runs out.

A step's windows go through the model a few at a time (a micro-batch); fewer of them need less memory and give the same
gradient to rounding. So memory that runs out costs speed, not the run.
"""

import psutil
import torch

from tokenmill.model.build import parameter_count
from tokenmill.model.config import ModelConfig
from tokenmill.training.estimate import memory

ROOM = 0.5
"""What autograd keeps of a micro-batch may take this share of free memory: the backward pass and others need some."""

BYTES_PER_PARAMETER = 16
"""Weight, gradient and AdamW's two moments, in float32."""

_SIGNS = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED", "could not create a primitive")
"""What PyTorch's allocators, CUDA's libraries and oneDNN say where they raise a plain RuntimeError."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out, on whatever device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def windows_that_fit(config: ModelConfig, at_most: int, device: torch.device) -> int:
    """`at_most`, or the half, a quarter, … of it that this device's memory should hold.

    Known beforehand for the CPU alone, where memory that runs out ends in a kill more often than in an error. Other
    devices tell in time: there the first step finds out.
    """
    if device.type != "cpu":
        return at_most
    free = psutil.virtual_memory().available
    while at_most > 1 and _of_windows(config, at_most) > ROOM * free:
        at_most //= 2
    return at_most


def too_large(config: ModelConfig, device: str) -> str:
    """What to tell when not even one window fits."""
    model, window = parameter_count(config) * BYTES_PER_PARAMETER, _of_windows(config, 1)
    return (
        f"out of memory on {device} with one window at a time: weights, gradients and optimizer need about "
        f"{_size(model)}, a window {_size(window)}. Take a smaller model.n_layer ({config.n_layer}), model.n_embd "
        f"({config.n_embd}) or model.context_length ({config.context_length}), or a device with more memory."
    )


def _of_windows(config: ModelConfig, windows: int) -> int:
    """Bytes that so many windows take on their way through the model, in float32."""
    need = memory(config, windows=windows, precision="float32", optimizer="adamw")
    return need.activations + need.logits


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
