"""The architectures and the small models of these tests."""

from typing import Any, get_args

import torch

from tokenmill.model.config import Architecture, ModelConfig
from tokenmill.model.gpt import GPT

ARCHITECTURES = get_args(Architecture)


def small_config(architecture: str, **changes: Any) -> ModelConfig:
    values = {
        "n_layer": 2,
        "n_head": 2,
        "n_embd": 16,
        "context_length": 12,
        "dropout": 0.0,
        "vocab_size": 23,
    }
    return ModelConfig.model_validate({"architecture": architecture} | values | changes)


def config_of(architecture: str, **changes: Any) -> ModelConfig:
    """A model that is large enough for its sizes to be told apart."""
    wider = {"n_layer": 3, "n_head": 4, "n_embd": 64, "context_length": 48, "vocab_size": 101}
    return small_config(architecture, **wider | changes)


def with_noise(model: GPT, *, seed: int, scale: float) -> GPT:
    """The model, in which no weight is zero or equal to another."""
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draws), alpha=scale)
    return model
