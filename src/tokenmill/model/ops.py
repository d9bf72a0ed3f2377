"""The operations inside a transformer block that PyTorch's own modules do not cover well on a CPU.

Each autograd function here makes fewer passes over memory than the gradient that PyTorch derives from the same formula.
This matters on a CPU; on a GPU the compiler fuses the passes. All compute in float32 and return the precision of their
input. In inference mode, where no gradient can be asked for, PyTorch's operators are called directly.
Axes: B batch, H heads, T positions, S positions of the keys, K features per head.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

NORM_EPS = 1e-6
GELU_SCALE, GELU_CUBE = 2 * math.sqrt(2 / math.pi), 0.044715
"""GELU's tanh form is x · logistic(GELU_SCALE · (x + GELU_CUBE · x³)), because (1 + tanh u) / 2 = logistic(2 u)."""
MAX_PLAIN_LENGTH = 256
"""Up to this many positions a CPU computes all scores at once faster than PyTorch's blockwise attention."""


def attend(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, *, dropout: float) -> Tensor:
    """Causal attention, (B, H, T, K) -> (B, T, H * K).

    There are either as many keys as queries, and each position sees itself and those before it, or there is one query,
    the newest position, which sees all S keys.
    """
    positions = q_BHTK.shape[2]
    if 1 < positions <= MAX_PLAIN_LENGTH and not dropout and q_BHTK.device.type == "cpu":
        y_BHTK = _plain_attention(q_BHTK, k_BHSK, v_BHSK)
    else:
        y_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=positions > 1, dropout_p=dropout)
    return y_BHTK.transpose(1, 2).flatten(2)


def _plain_attention(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
    """Attention as its definition says: scores, softmax, weighted mean of the values."""
    positions = q_BHTK.shape[2]
    mask_TT = torch.full((positions, positions), -torch.inf, dtype=q_BHTK.dtype, device=q_BHTK.device).triu_(1)
    q, k, v = (x.flatten(0, 1) for x in (q_BHTK, k_BHTK, v_BHTK))
    scores = torch.baddbmm(mask_TT, q, k.transpose(1, 2), alpha=q.shape[-1] ** -0.5)
    return torch.bmm(scores.softmax(-1), v).unflatten(0, q_BHTK.shape[:2])


def rms_norm(x: Tensor) -> Tensor:
    """Scale the last axis to a root mean square of one (Zhang and Sennrich 2019), without a learned weight."""
    if torch.is_inference_mode_enabled():
        return F.rms_norm(x, x.shape[-1:], eps=NORM_EPS)
    return _RMSNorm.apply(x)  # type: ignore[return-value]


def apply_rotary(x: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
    """Rotate each feature pair (i, i + K / 2) of x (..., T, K) by minus its position's angle (Su et al. 2021).

    `cos_TK` and `sin_TK` hold one value for each feature; the sine of a pair's second feature is negative.
    """
    if torch.is_inference_mode_enabled():
        return _rotated(x, cos_TK, sin_TK)
    return _Rotary.apply(x, cos_TK, sin_TK)  # type: ignore[return-value]


def relu_squared(x: Tensor) -> Tensor:
    """max(x, 0)² (So et al. 2021)."""
    if torch.is_inference_mode_enabled():
        return x.relu().square_()
    return _ReluSquared.apply(x)  # type: ignore[return-value]


def gelu(x: Tensor) -> Tensor:
    """x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, GPT-2's form of GELU (Hendrycks and Gimpel 2016)."""
    if x.device.type != "cpu" or torch.is_inference_mode_enabled():
        return F.gelu(x, approximate="tanh")
    return _GELU.apply(x, torch.is_grad_enabled())  # type: ignore[return-value]


def softcap(x: Tensor, cap: float) -> Tensor:
    """cap · tanh(x / cap), by way of the logistic function, which a CPU computes four times as fast as tanh."""
    return (x * (2 / cap)).sigmoid_().mul(2 * cap).sub_(cap)


class _RMSNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x_f32 = x.float()
        norm = torch.linalg.vector_norm(x_f32, dim=-1, keepdim=True)
        scale = norm.square_().div_(x.shape[-1]).add_(NORM_EPS).rsqrt_()
        y = (x_f32 * scale).to(x.dtype)
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        y, scale = ctx.saved_tensors
        along = (gradient * y).mean(-1, keepdim=True, dtype=torch.float32)
        return torch.addcmul(gradient.float(), y.float(), along, value=-1).mul_(scale).to(gradient.dtype)


class _Rotary(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
        ctx.save_for_backward(cos_TK, sin_TK)
        return _rotated(x, cos_TK, sin_TK)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        cos_TK, sin_TK = ctx.saved_tensors
        return _rotated(gradient, cos_TK, -sin_TK), None, None


def _rotated(x: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
    x_f32 = x.float()
    return x_f32.roll(x.shape[-1] // 2, -1).mul_(sin_TK).addcmul_(x_f32, cos_TK).to(x.dtype)


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
    """Keeps the slope instead of x: it takes the same memory, and one exponential serves both value and slope."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gradient: bool) -> Tensor:
        x_f32 = x.float()
        square = x_f32 * x_f32
        gate = torch.rsub(square, GELU_SCALE, alpha=-GELU_SCALE * GELU_CUBE).mul_(x_f32).sigmoid_()
        y = x_f32 * gate
        if gradient:
            slope = square.mul_(3 * GELU_SCALE * GELU_CUBE).add_(GELU_SCALE).mul_(y)
            ctx.save_for_backward(slope.addcmul_(slope, gate, value=-1).add_(gate).to(x.dtype))
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (slope,) = ctx.saved_tensors
        return gradient * slope, None
