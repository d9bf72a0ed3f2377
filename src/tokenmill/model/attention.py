"""Causal attention, by `scaled_dot_product_attention` or in three products, with a cache of keys and values.

Axes: B batch, H heads, T positions of this call, S positions seen so far, K features per head.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

SHORT = 256
"""Up to so many positions a CPU is quicker with all scores at once than with PyTorch's blocks of them."""


class KVCache:
    """Keys and values of the positions already seen, per layer: (n_layer, B, H, context_length, K)."""

    def __init__(self, *, n_layer: int, batch: int, n_head: int, context_length: int, head_dim: int, like: Tensor):
        shape = (n_layer, batch, n_head, context_length, head_dim)
        self.keys = torch.empty(shape, dtype=like.dtype, device=like.device)
        self.values = torch.empty_like(self.keys)
        self.length = 0

    def extend(self, layer: int, k_BHTK: Tensor, v_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """Store this call's keys and values of one layer; give back all up to now."""
        end = self.length + k_BHTK.shape[2]
        assert end <= self.keys.shape[3], "the caller keeps within the context"
        self.keys[layer, :, :, self.length : end] = k_BHTK
        self.values[layer, :, :, self.length : end] = v_BHTK
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def advance(self, positions: int) -> None:
        """Count this call's positions as seen, once every layer has stored them."""
        self.length += positions


def attend(
    q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, *, cache: KVCache | None, layer: int, dropout: float
) -> Tensor:
    """Causal attention of this call's positions over all seen so far: (B, H, T, K) -> (B, T, H * K).

    With a cache that already holds something, T must be 1 (one new token at a time).
    """
    causal = q_BHTK.shape[2] > 1
    if cache is not None:
        assert not (causal and cache.length), "after the prompt, tokens come one at a time"
        k_BHTK, v_BHTK = cache.extend(layer, k_BHTK, v_BHTK)
    if causal and not dropout and q_BHTK.device.type == "cpu" and q_BHTK.shape[2] <= SHORT:
        y_BHTK = _in_three_products(q_BHTK, k_BHTK, v_BHTK)
    else:
        y_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=causal, dropout_p=dropout)
    return y_BHTK.transpose(1, 2).flatten(2)


def _in_three_products(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
    """The same as written in the definition: scores, softmax, mean of the values."""
    positions = q_BHTK.shape[2]
    later_TT = torch.full((positions, positions), -torch.inf, dtype=q_BHTK.dtype, device=q_BHTK.device).triu_(1)
    q, k, v = (x.flatten(0, 1) for x in (q_BHTK, k_BHTK, v_BHTK))
    scores = torch.baddbmm(later_TT, q, k.transpose(1, 2), alpha=q.shape[-1] ** -0.5)
    return torch.bmm(scores.softmax(-1), v).unflatten(0, q_BHTK.shape[:2])
