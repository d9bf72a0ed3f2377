"""What the models do to numbers one by one, each with its gradient in few passes over memory.

PyTorch's own gradients of the same formulas go over the numbers two to three times as often. Where a model is compiled
the compiler joins what is left. Computed in float32, handed out in the precision that came in.
Axes: T positions, K features of a head.

Causal attention, by `scaled_dot_product_attention` or in three products.

Axes: B batch, H heads, T positions, K features per head.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

NORM_EPS = 1e-6


GELU = 2 * math.sqrt(2 / math.pi), 0.044715
"""Twice the outer and the inner factor in GELU's tanh form: (1 + tanh u) / 2 is logistic(2 u)."""


def rms_norm(x: Tensor) -> Tensor:
    """Scale the last axis to a root mean square of one."""
    return _RMSNorm.apply(x)  # type: ignore[return-value]


def rotate(x: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
    """Turn feature pairs (i, i + K / 2) of (..., T, K) by minus the angle whose cosine and sine are given for each
    feature; the second one's sine is negative.
    """
    return _Rotate.apply(x, cos_TK, sin_TK)  # type: ignore[return-value]


def relu_squared(x: Tensor) -> Tensor:
    """The square of what is positive."""
    return _ReluSquared.apply(x)  # type: ignore[return-value]


def gelu(x: Tensor) -> Tensor:
    """x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, GPT-2's form of GELU (Hendrycks and Gimpel 2016)."""
    return _GELU.apply(x) if x.device.type == "cpu" else F.gelu(x, approximate="tanh")  # type: ignore[return-value]


def capped(x: Tensor, cap: float) -> Tensor:
    """cap · tanh(x / cap). As in GELU tanh is a logistic function here, which a CPU computes four times as fast."""
    return (x * (2 / cap)).sigmoid_().mul(2 * cap).sub_(cap)


class _RMSNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        wide = x.float()
        norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = norm.square_().div_(x.shape[-1]).add_(NORM_EPS).rsqrt_()
        y = (wide * scale).to(x.dtype)
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        y, scale = ctx.saved_tensors
        along = (gradient * y).mean(-1, keepdim=True, dtype=torch.float32)
        return torch.addcmul(gradient.float(), y.float(), along, value=-1).mul_(scale).to(gradient.dtype)


class _Rotate(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
        ctx.save_for_backward(cos_TK, sin_TK)
        return _turned(x, cos_TK, sin_TK)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        cos_TK, sin_TK = ctx.saved_tensors
        return _turned(gradient, cos_TK, -sin_TK), None, None


def _turned(x: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
    wide = x.float()
    return wide.roll(x.shape[-1] // 2, -1).mul_(sin_TK).addcmul_(wide, cos_TK).to(x.dtype)


class _ReluSquared(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = x.relu()
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (positive,) = ctx.saved_tensors
        return (gradient * positive).mul_(2)


class _GELU(Function):
    """The slope is computed beside the value and kept instead of x: the same memory, and one exponential for both."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        wide, (outer, inner) = x.float(), GELU
        square = wide * wide
        gate = torch.rsub(square, outer, alpha=-outer * inner).mul_(wide).sigmoid_()
        y = wide * gate
        if ctx.needs_input_grad[0]:
            slope = square.mul_(3 * outer * inner).add_(outer).mul_(y)
            ctx.save_for_backward(slope.addcmul_(slope, gate, value=-1).add_(gate).to(x.dtype))
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (slope,) = ctx.saved_tensors
        return gradient * slope


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
