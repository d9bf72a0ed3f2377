"""From a configuration to a model: with fresh weights, to be loaded, or only to be counted."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tokenmill.model.config import Architecture, ModelConfig
from tokenmill.model.gpt import GPT


def model_class(architecture: Architecture) -> type[GPT]:
    """The class of an architecture: `MODEL` in the module of this folder that is named like it."""
    return importlib.import_module(f"tokenmill.model.{architecture}").MODEL


def build(config: ModelConfig, *, seed: int) -> GPT:
    """A model with fresh weights, on the CPU in float32; the same seed gives the same weights on every machine."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config.architecture)(config)
        model.initialize()
    return model


def empty_model(config: ModelConfig, device: str = "meta") -> GPT:
    """A model whose weights and buffers are not set: on the meta device it takes no memory, elsewhere it is to be
    loaded."""
    with torch.device(device), _SkipInit():
        return model_class(config.architecture)(config)


class _SkipInit(TorchFunctionMode):
    """Makes the functions of `torch.nn.init` return their tensor unchanged.

    What they draw would be overwritten; and to draw on the meta device PyTorch imports its compiler, which takes two
    seconds.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call any other function."""
        if getattr(function, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if kwargs and "tensor" in kwargs else args[0]
        return function(*args, **(kwargs or {}))


def parameter_count(config: ModelConfig) -> int:
    """The number of trained parameters; allocates nothing."""
    return sum(parameter.numel() for parameter in empty_model(config).parameters())


def copy_model(model: GPT, transform: Callable[[Tensor], Tensor]) -> GPT:
    """A copy with `transform` of each parameter. It has no buffers, so it can be saved but not run."""
    copy = empty_model(model.config)
    for name, parameter in model.named_parameters():
        owner, _, last = name.rpartition(".")
        setattr(copy.get_submodule(owner), last, torch.nn.Parameter(transform(parameter)))
    return copy


def is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    """Whether a parameter is a matrix inside the blocks (neither embedding, head, norm nor bias)."""
    return parameter.ndim == 2 and name.startswith("blocks.")
