"""Layers of GPT-2 as PyTorch's compiler, Inductor, needs them to make few passes over a GPU's memory.

Anywhere else each is PyTorch's own layer. `python -m tests.cuda.traffic` counts what a compiled step moves.
Axes: B batch, T positions, M = B * T rows, D and E widths.
"""

from typing import Any

import torch
from torch import Size, Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from tokenmill.model import ops


def rows(x_BTD: Tensor) -> Tensor:
    """(B, T, D) -> (M, D) on a GPU.

    Inductor fuses what has the same axes. A matrix product has rows, so it takes a pass of its own to round the
    gradient of a (B, T, D) sum for a product.
    """
    return x_BTD.flatten(0, 1) if ops.for_gpu(x_BTD) else x_BTD


def shaped(x: Tensor, shape: Size) -> Tensor:
    """The inverse of `rows`: x in this shape."""
    return x if x.shape == shape else x.view(shape)


class LayerNorm(nn.LayerNorm):
    """Keeps its normalised input in the precision of the products; Inductor would keep it in float32."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (PyTorch's signature)
        """Any shape (..., D) -> the same shape."""
        if not ops.for_gpu(input):
            return super().forward(input)
        return _LayerNorm.apply(input, self.weight, self.bias, self.eps, ops.product_dtype(input))  # type: ignore[return-value]


class _LayerNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_D: Tensor, bias_D: Tensor, eps: float, kept: torch.dtype) -> Tensor:  # noqa: PLR0917 (apply takes no keywords)
        x_f32 = x.float()
        variance, mean = torch.var_mean(x_f32, -1, correction=0, keepdim=True)
        scale = (variance + eps).rsqrt()
        normed = (x_f32 - mean) * scale
        ctx.save_for_backward(normed.to(kept), scale, weight_D)
        return (normed * weight_D + bias_D).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        normed, scale, weight_D = ctx.saved_tensors
        by_y, normed = gradient.float(), normed.float()
        by_normed = by_y * weight_D
        along = (by_normed * normed).mean(-1, keepdim=True)
        by_x = (by_normed - by_normed.mean(-1, keepdim=True) - normed * along) * scale
        by_weight_D, by_bias_D = (by_y * normed).flatten(0, -2).sum(0), by_y.flatten(0, -2).sum(0)
        return by_x.to(gradient.dtype), by_weight_D, by_bias_D, None, None


class LinearBeforeFunction(nn.Linear):
    """A linear map behind which a function of each number follows, whose pass adds the bias, too.

    The gradient of the bias is summed within each sequence first: these sums have the axes of the pass that makes the
    gradient, so it takes no pass of its own.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (PyTorch's signature)
        """(B, T, D) -> (B, T, E), on a GPU in float32."""
        if not ops.for_gpu(input):
            return super().forward(input)
        return F.linear(input, self.weight) + self.bias.float().expand(len(input), 1, -1)
