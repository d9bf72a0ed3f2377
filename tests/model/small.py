"""The architectures and the small models of these tests."""

from typing import Any, get_args

from tokenmill.model.config import Architecture, ModelConfig

ARCHITECTURES = get_args(Architecture)


def small_config(architecture: str, **changes: Any) -> ModelConfig:
    values = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 12, "dropout": 0.0, "vocab_size": 23}
    return ModelConfig.model_validate({"architecture": architecture} | values | changes)
