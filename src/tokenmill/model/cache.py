"""Keys and values of the tokens that a model has already read, so that a further token costs one position only.

Axes: B texts, H heads, T new positions, S positions so far, K features per head.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tokenmill.model.config import ModelConfig


class LayerCache:
    """Keys and values of one attention layer, in memory allocated once."""

    def __init__(self, shape: tuple[int, int, int, int], device: torch.device):
        self.keys, self.values = torch.empty(shape, device=device), torch.empty(shape, device=device)
        self.length = 0

    def extend(self, k_BHTK: Tensor, v_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """Store the keys and values of new positions; return those of all positions so far, (B, H, S, K) each."""
        start, new = self.length, k_BHTK.shape[2]
        assert start == 0 or new == 1, "attention has no mask for several new positions behind others"
        self.keys.narrow(2, start, new).copy_(k_BHTK)
        self.values.narrow(2, start, new).copy_(v_BHTK)
        self.length = start + new
        return self.keys.narrow(2, 0, self.length), self.values.narrow(2, 0, self.length)


class KVCache:
    """The cache of a whole model, for texts of one length. `forward(ids_BT, cache=cache)` reads from it and fills it.

    The first call may read several tokens of each text, a further call reads one.
    """

    def __init__(self, config: ModelConfig, *, texts: int, max_length: int, device: torch.device):
        shape = (texts, config.n_head, max_length, config.head_dim)
        self.layers = [LayerCache(shape, device) for _ in range(config.n_layer)]
        self._device = device

    @property
    def length(self) -> int:
        """Positions that every layer holds."""
        return self.layers[-1].length

    def clear(self) -> None:
        """Forget all positions, so that the next call starts anew; the memory is used again."""
        for layer in self.layers:
            layer.length = 0

    def select(self, rows: Sequence[int]) -> None:
        """Keep these texts only, in this order."""
        index = torch.tensor(rows, device=self._device)
        for layer in self.layers:
            layer.keys, layer.values = layer.keys[index], layer.values[index]
