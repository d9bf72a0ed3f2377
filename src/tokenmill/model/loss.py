"""The loss of the next token, without ever holding the logits of a whole batch.

The logits are by far the largest tensor of a batch: 64 sequences of 512 tokens over 50,257 ids take 6.6 GB in float32.
This loss computes them for some rows at a time, and the gradient of these rows right after them, so that nothing is
computed twice. (PyTorch's chunked `linear_cross_entropy` has no cap and cannot be compiled.)
Axes: M positions of a batch, R rows at a time, D width, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tokenmill.model.ops import softcap

LOGITS_AT_A_TIME = 2**26
"""Logits that exist at the same time: 256 MiB in float32."""
ALIGNED = 64
"""Tensor cores need matrices whose sides are multiples of this, so a GPU gets the vocabulary padded with zeros."""


def next_token_loss(x_BTD: Tensor, head_VD: Tensor, targets_BT: Tensor, *, cap: float | None) -> Tensor:
    """Mean cross-entropy in nats, a scalar, of the logits x · head, which tanh keeps within ±`cap`.

    The gradient is computed in the forward pass, unless gradients are switched off.
    """
    kind = x_BTD.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x_BTD.dtype
    padding = -len(head_VD) % ALIGNED if kind == "cuda" else 0
    rows = max(1, LOGITS_AT_A_TIME // len(head_VD))
    x_MD, targets_M = x_BTD.flatten(0, -2), targets_BT.flatten()
    gradient = torch.is_grad_enabled()  # asked here because inside a Function it is always off
    return _Loss.apply(x_MD, head_VD, targets_M, cap, dtype, padding, rows, gradient)  # type: ignore[return-value]


class _Loss(torch.autograd.Function):
    """Computes the gradient of the summed loss; `backward` scales it by the mean and by the gradient that it gets."""

    @staticmethod
    def forward(  # noqa: PLR0917 (apply takes no keywords)
        ctx: Any,
        x_MD: Tensor,
        head_VD: Tensor,
        targets_M: Tensor,
        cap: float | None,
        dtype: torch.dtype,
        padding: int,
        rows: int,
        gradient: bool,
    ) -> Tensor:
        vocabulary = len(head_VD)
        head = F.pad(head_VD.to(dtype), (0, 0, 0, padding))
        total = torch.zeros((), device=x_MD.device)
        by_x, by_head = [], torch.zeros_like(head_VD) if gradient else None
        for x, targets in zip(x_MD.split(rows), targets_M.split(rows), strict=True):
            x_RD = x.to(dtype)
            logits_RV = (x_RD @ head.T)[:, :vocabulary].float()
            if cap is not None:
                logits_RV = softcap(logits_RV, cap)
            highest_R1 = logits_RV.amax(-1, keepdim=True)
            softmax_RV = (logits_RV - highest_R1).exp_()
            sum_R1 = softmax_RV.sum(-1, keepdim=True)
            total += (sum_R1.log() + highest_R1 - logits_RV.gather(1, targets[:, None])).sum()
            if by_head is None:
                continue
            by_logits = _by_logits(softmax_RV.div_(sum_R1), logits_RV, targets, cap).to(dtype)
            by_x.append(by_logits @ head[:vocabulary] if not padding else F.pad(by_logits, (0, padding)) @ head)
            by_head += by_logits.T @ x_RD
        if by_head is not None:
            ctx.save_for_backward(torch.cat(by_x).to(x_MD.dtype), by_head)
        return total / len(targets_M)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        by_x, by_head = ctx.saved_tensors
        each = gradient / len(by_x)
        return by_x * each.to(by_x.dtype), by_head * each, None, None, None, None, None, None


def _by_logits(softmax_RV: Tensor, capped_RV: Tensor, targets_R: Tensor, cap: float | None) -> Tensor:
    """The gradient of the summed loss with respect to the uncapped logits; overwrites `softmax_RV`."""
    softmax_RV.scatter_add_(1, targets_R[:, None], softmax_RV.new_full((len(targets_R), 1), -1.0))
    return softmax_RV if cap is None else softmax_RV.mul_(1 - (capped_RV / cap).square_())
