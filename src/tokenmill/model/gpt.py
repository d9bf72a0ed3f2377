"""What every architecture provides. The rest of TokenMill asks a model or its class, and never which one it is.

To add an architecture, write a module in this folder with a subclass of `GPT`, called `MODEL`, and add the module's
name to `Architecture` in config.py. The tests in tests/model then run for it, too.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tokenmill.model.cache import KVCache
from tokenmill.model.config import ModelConfig


@dataclass(frozen=True)
class TrainingMemory:
    """What training needs beside parameters, gradients and optimizer state.

    The masks of dropout and the row sums of attention are not counted here: they are the same for all architectures.
    """

    block_bytes: int
    """Bytes per token that each block keeps for the backward pass."""
    other_bytes: int
    """Bytes per token that the rest keeps, without logits."""
    weight_copy_bytes: int
    """Bytes of float32 copies of weights; copies in half precision are not counted here."""
    logit_tensors: int
    """Tensors as large as the logits that the loss holds at the same time."""


class GPT(nn.Module, ABC):
    """A causal language model. Each architecture is a subclass in a module of its own, named as in params.yaml."""

    config: ModelConfig
    tokens: nn.Embedding
    blocks: nn.ModuleList
    head: nn.Linear

    hf_names: ClassVar[Sequence[tuple[str, str]]]
    """Pairs of a part of our parameter names and the part that transformers has instead. A pair that starts with a dot
    is replaced anywhere in a name, the others only at its start."""
    hf_transposed: ClassVar[tuple[str, ...]] = ()
    """Endings of the names of block matrices that transformers stores as (in, out) instead of (out, in)."""

    @abstractmethod
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.weight.device

    @abstractmethod
    def initialize(self) -> None:
        """Compute the buffers and draw the starting weights from PyTorch's current random state."""

    def compute_buffers(self) -> None:
        """Compute what is neither trained nor saved, if there is such a thing."""

    @abstractmethod
    def forward(self, ids_BT: Tensor, targets_BT: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        """Ids (B, T) -> logits (B, T, V); with targets (B, T) -> their mean loss in nats, a scalar.

        With a cache the ids follow those that it holds, and only the last position's logits are computed: (B, 1, V).
        """

    @abstractmethod
    def forward_embedded(self, x_BTD: Tensor, targets_BT: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        """`forward` behind the lookup of embeddings: the part that is compiled on a CPU."""

    @staticmethod
    @abstractmethod
    def hf_config(config: ModelConfig) -> dict[str, Any]:
        """What config.json tells transformers of this architecture."""

    @staticmethod
    @abstractmethod
    def training_memory(config: ModelConfig, *, half: bool) -> TrainingMemory:
        """What training needs beside the parameters; `half`: matrix products in half precision instead of float32."""
