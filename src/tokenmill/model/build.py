"""From a configuration to a model, and to what it weighs, without allocating it first."""

from collections.abc import Callable

import torch
from torch import Tensor

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


def skeleton(config: ModelConfig) -> GPT:
    """A model without memory for its weights, for counting or loading."""
    with torch.device("meta"):
        return ARCHITECTURES[config.architecture](config)


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
