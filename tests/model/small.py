"""The architectures and the small models of these tests."""

from typing import Any, get_args

from tokenmill.model.config import Architecture, ModelConfig

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
