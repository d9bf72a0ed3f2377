"""The configuration of the small models in these tests."""

from typing import Any

from tokenmill.model.config import ModelConfig


def small_config(architecture: str, **changes: Any) -> ModelConfig:
    values = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 12, "dropout": 0.0, "vocab_size": 23}
    return ModelConfig.model_validate({"architecture": architecture} | values | changes)
