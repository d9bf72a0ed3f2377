"""From a configuration to a model, and to what it weighs, without allocating it first."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt2 import GPT2
from tokenmill.model.modern import Modern

GPT = GPT2 | Modern
"""A model: `forward(ids_BT) -> logits_BTV`, `forward(ids_BT, targets_BT=targets_BT) -> loss`."""


ARCHITECTURES: dict[str, type[GPT2] | type[Modern]] = {"gpt2": GPT2, "modern": Modern}


def build(config: ModelConfig, *, seed: int) -> GPT:
    """A model with fresh weights, on the CPU in float32; the same seed gives the same weights on every machine."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ARCHITECTURES[config.architecture](config)
        model.initialize()
    return model


def skeleton(config: ModelConfig, device: str = "meta") -> GPT:
    """A model whose weights and buffers are not set: without memory for them, to count; on a device, to be loaded."""
    with torch.device(device), _NothingDrawn():
        return ARCHITECTURES[config.architecture](config)


class _NothingDrawn(TorchFunctionMode):
    """Where it is in force, the functions of `torch.nn.init` leave tensors as they are.

    What they draw would be overwritten; and on the meta device PyTorch loads its compiler to draw, for two seconds.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function, unless it draws."""
        if getattr(function, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if kwargs and "tensor" in kwargs else args[0]
        return function(*args, **(kwargs or {}))


def parameter_count(config: ModelConfig) -> int:
    """Trained numbers of a model; allocates nothing."""
    return sum(parameter.numel() for parameter in skeleton(config).parameters())


def copy_of(model: GPT, value: Callable[[Tensor], Tensor]) -> GPT:
    """A model of the same shape whose parameters are `value` of this one's; for saving only: it has no buffers."""
    copy = skeleton(model.config)
    for name, parameter in model.named_parameters():
        owner, _, last = name.rpartition(".")
        setattr(copy.get_submodule(owner), last, torch.nn.Parameter(value(parameter)))
    return copy


def is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    """Whether a parameter is a matrix inside the blocks (neither embedding, head, norm nor bias)."""
    return parameter.ndim == 2 and name.startswith("blocks.")
