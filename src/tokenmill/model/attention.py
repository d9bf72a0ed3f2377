"""Causal attention, by `scaled_dot_product_attention` or in three products.

Axes: B batch, H heads, T positions, K features per head.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

SHORT = 256
"""Up to so many positions a CPU is quicker with all scores at once than with PyTorch's blocks of them."""


def attend(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, *, dropout: float) -> Tensor:
    """Causal attention: each position looks at itself and those before, (B, H, T, K) -> (B, T, H * K)."""
    if not dropout and q_BHTK.device.type == "cpu" and q_BHTK.shape[2] <= SHORT:
        y_BHTK = _in_three_products(q_BHTK, k_BHTK, v_BHTK)
    else:
        y_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True, dropout_p=dropout)
    return y_BHTK.transpose(1, 2).flatten(2)


def _in_three_products(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
    """The same as written in the definition: scores, softmax, mean of the values."""
    positions = q_BHTK.shape[2]
    later_TT = torch.full((positions, positions), -torch.inf, dtype=q_BHTK.dtype, device=q_BHTK.device).triu_(1)
    q, k, v = (x.flatten(0, 1) for x in (q_BHTK, k_BHTK, v_BHTK))
    scores = torch.baddbmm(later_TT, q, k.transpose(1, 2), alpha=q.shape[-1] ** -0.5)
    return torch.bmm(scores.softmax(-1), v).unflatten(0, q_BHTK.shape[:2])
