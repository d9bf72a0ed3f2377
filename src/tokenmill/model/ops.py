"""The operations inside a transformer, and its loss, that PyTorch's own modules do not cover well
on a CPU.

Each autograd function here makes fewer passes over memory than the gradient that PyTorch derives
from the same formula. This matters on a CPU; on a GPU the compiler fuses the passes. All functions
compute in float32 and return the precision of their input. In inference mode, which needs no
gradient, PyTorch's operators are called directly.

Axes: B batch, H heads, T positions, S positions of the keys, K features per head, D width, V
vocabulary; in the loss M positions of a batch, R of them at a time.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

NORM_EPS = 1e-6
GELU_CUBE = 0.044715
GELU_SCALE = 2 * math.sqrt(2 / math.pi)
"""GELU's tanh form is x · logistic(GELU_SCALE · (x + GELU_CUBE · x³)), because (1 + tanh u) / 2 =
logistic(2 u)."""
MAX_PLAIN_LENGTH = 256
"""Up to this many positions, a CPU computes attention faster from all scores at once than by
PyTorch's blockwise kernel."""
LOGITS_AT_A_TIME = 2**26
"""The most logits that exist at the same time: 256 MiB in float32."""
COMPILED_LOGITS = 2**30
"""The most logits that exist at the same time in code compiled for a GPU: 2 GiB in half
precision."""
ALIGNED = 64
"""On a GPU the vocabulary is padded with zeros to a multiple of this, as tensor cores need it."""
ALIGNED_ROWS = 256
"""On a GPU the loss takes rows in multiples of this at a time, except the last ones."""
IGNORED = -1
"""The target that adds nothing to the loss. A CPU obeys it only with `some_ignored`."""
FLOAT16_SCALE = 64
"""With float16, the head's gradient is computed divided by this number. The sum over thousands of
rows might otherwise leave float16's range."""


def attend(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    *,
    dropout: float,
    mask_B1TT: Tensor | None = None,
) -> Tensor:
    """Causal attention: queries (B, H, T, K), keys and values (B, H, S, K) -> (B, T, H * K).

    There are two cases. With S = T, each position attends to itself and the positions before it.
    With T = 1, the query is the newest position and attends to all S keys. A mask, where there is
    one, says instead which positions attend to which.
    """
    positions = q_BHTK.shape[2]
    # An exported model takes any length. In torch 2.11 `is_exporting` is true in compiled code, too
    any_length = torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()
    if any_length or (1 < positions <= MAX_PLAIN_LENGTH and q_BHTK.device.type == "cpu"):
        y_BHTK = _plain_attention(q_BHTK, k_BHSK, v_BHSK, mask_B1TT, dropout)
    else:
        is_causal = mask_B1TT is None and positions > 1
        y_BHTK = F.scaled_dot_product_attention(
            q_BHTK, k_BHSK, v_BHSK, mask_B1TT, dropout_p=dropout, is_causal=is_causal
        )
    return y_BHTK.transpose(1, 2).flatten(2)


def own_text_mask(starts_BT: Tensor) -> Tensor:
    """The mask of a sequence of several texts, (B, 1, T, T): each position attends to itself and
    the positions before it, back to the start of its text.

    Args:
        starts_BT: where the text of each position starts in its sequence.
    """
    position_T = torch.arange(starts_BT.shape[1], device=starts_BT.device)
    seen_BTT = (position_T <= position_T[:, None]) & (position_T >= starts_BT[:, :, None])
    return seen_BTT[:, None]


def _plain_attention(
    q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, mask_B1TT: Tensor | None, share: float
) -> Tensor:
    """Attention as its definition says: scores, softmax, dropout of this share, weighted mean of
    the values."""
    positions = q_BHTK.shape[2]
    if mask_B1TT is None:
        hidden = torch.full(
            (positions, positions), -torch.inf, dtype=q_BHTK.dtype, device=q_BHTK.device
        ).triu_(1)
    else:
        hidden = q_BHTK.new_zeros(mask_B1TT.shape).masked_fill_(~mask_B1TT, -torch.inf)
        hidden = hidden.expand(-1, q_BHTK.shape[1], -1, -1).flatten(0, 1)
    q, k, v = (x.flatten(0, 1) for x in (q_BHTK, k_BHTK, v_BHTK))
    scores = torch.baddbmm(hidden, q, k.transpose(1, 2), alpha=q.shape[-1] ** -0.5)
    return torch.bmm(dropout(scores.softmax(-1), share), v).unflatten(0, q_BHTK.shape[:2])


def dropout(x: Tensor, share: float) -> Tensor:
    """Set a random share of the numbers to zero, and divide the others by the rest of the share
    (Srivastava et al. 2014).

    PyTorch draws a number of 32 bits for each of them, one after the other, which on a CPU takes
    longer than a block's products. Here 16 bits decide, so the share is a multiple of 2^-16.
    """
    if not share or x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, share)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    zeros = min(round(share * 2**16), 2**16 - 1)
    factor = torch.empty(x.shape, dtype=x.dtype)
    torch.ge(draws.view(torch.int16)[: x.numel()].view(x.shape), zeros - 2**15, out=factor)
    return x * factor.mul_(2**16 / (2**16 - zeros))


class Dropout(nn.Dropout):
    """`dropout` in training."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (PyTorch's name)
        """A tensor of the input's shape."""
        return dropout(input, self.p) if self.training else input


def rms_norm(x: Tensor) -> Tensor:
    """Scale the last axis to a root mean square of one (Zhang and Sennrich 2019), without a learned
    weight."""
    if _needs_no_gradient():
        return F.rms_norm(x, x.shape[-1:], eps=NORM_EPS)
    return _RMSNorm.apply(x)  # type: ignore[return-value]


def apply_rotary(x: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
    """Rotate each feature pair (i, i + K / 2) of x (..., T, K) by minus its position's angle (Su et
    al. 2021).

    `cos_TK` and `sin_TK` hold one value for each feature; the sine of a pair's second feature is
    negative.
    """
    if _needs_no_gradient():
        return _rotated(x, cos_TK, sin_TK)
    return _Rotary.apply(x, cos_TK, sin_TK)  # type: ignore[return-value]


def relu_squared(x: Tensor) -> Tensor:
    """max(x, 0)² (So et al. 2021)."""
    if _needs_no_gradient():
        return x.relu().square_()
    return _ReluSquared.apply(x)  # type: ignore[return-value]


def gelu(x: Tensor) -> Tensor:
    """x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, GPT-2's form of GELU (Hendrycks and Gimpel
    2016)."""
    if x.device.type != "cpu" or _needs_no_gradient():
        return F.gelu(x, approximate="tanh")
    return _GELU.apply(x, torch.is_grad_enabled())  # type: ignore[return-value]


def for_gpu(x: Tensor) -> bool:
    """Whether this code is being compiled for a GPU."""
    return x.device.type == "cuda" and torch.compiler.is_dynamo_compiling()


def product_dtype(x: Tensor) -> torch.dtype:
    """The precision in which x is multiplied with a matrix."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def stream_dtype(products: torch.dtype) -> torch.dtype:
    """The precision of the residual stream, the sum to which each block adds, beside products of
    this precision.

    It is bfloat16 where products are. Rounding it costs no loss that three seeds would show, and
    every block moves fewer bytes (docs/decisions.md). float16 has too small a range for it.
    """
    return torch.bfloat16 if products == torch.bfloat16 else torch.float32


def residual_stream(x: Tensor) -> Tensor:
    """The embeddings x as the beginning of the residual stream."""
    products = product_dtype(x)
    return x.to(stream_dtype(products)) if products != x.dtype else x


def in_precision(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in this precision; x itself if that is its own.

    The last operation of an autograd function's forward must make a new tensor. PyTorch 2.11 loses
    the gradient of a compiled one that ends with `x.to` without effect, or with an operation in
    place.
    """
    return x if x.dtype == dtype else x.to(dtype)


def _needs_no_gradient() -> bool:
    """Whether this is inference mode. Compiled code skips the question, which would break its
    graph."""
    return not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()


def softcap(x: Tensor, cap: float) -> Tensor:
    """cap · tanh(x / cap), computed by the logistic function, which is four times as fast on a CPU
    as tanh."""
    return (x * (2 / cap)).sigmoid_().mul(2 * cap).sub_(cap)


class _RMSNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x_f32 = x.float()
        norm = torch.linalg.vector_norm(x_f32, dim=-1, keepdim=True)
        scale = norm.square_().div_(x.shape[-1]).add_(NORM_EPS).rsqrt_()
        y = in_precision(x_f32 * scale, x.dtype)
        # The product after it keeps the rounded result anyway, and Inductor notices that both are
        # the same
        ctx.save_for_backward(in_precision(y, product_dtype(x)) if for_gpu(x) else y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        y, scale = ctx.saved_tensors
        along = (gradient * y).mean(-1, keepdim=True, dtype=torch.float32)
        return (
            torch.addcmul(gradient.float(), y.float(), along, value=-1)
            .mul_(scale)
            .to(gradient.dtype)
        )


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
    other = x_f32.roll(x.shape[-1] // 2, -1).mul_(sin_TK)
    add = torch.addcmul if torch.compiler.is_compiling() else Tensor.addcmul_
    return in_precision(add(other, x_f32, cos_TK), x.dtype)


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
    """GELU that saves its slope instead of x. This takes the same memory, and one exponential
    serves both value and slope."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gradient: bool) -> Tensor:
        x_f32 = x.float()
        square = x_f32 * x_f32
        gate = torch.rsub(square, GELU_SCALE, alpha=-GELU_SCALE * GELU_CUBE).mul_(x_f32).sigmoid_()
        y = x_f32 * gate
        if gradient:
            slope = square.mul_(3 * GELU_SCALE * GELU_CUBE).add_(GELU_SCALE).mul_(y)
            ctx.save_for_backward(slope.addcmul_(slope, gate, value=-1).add_(gate).to(x.dtype))
        return in_precision(y, x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (slope,) = ctx.saved_tensors
        return gradient * slope, None


def next_token_loss(
    x_BTD: Tensor,
    head_VD: Tensor,
    targets_BT: Tensor,
    *,
    cap: float | None,
    some_ignored: bool = False,
) -> Tensor:
    """Mean cross-entropy in nats, a scalar, of the logits x · head, which tanh keeps within ±`cap`.

    The logits of a whole batch would be by far its largest tensor: 64 sequences of 512 tokens over
    50,257 ids take 6.6 GB in float32. So logits are computed for some rows at a time, each with its
    gradient, unless gradients are switched off. (PyTorch's chunked `linear_cross_entropy` has no
    cap and cannot be compiled.) Targets of `IGNORED` add nothing, but the mean counts them. A GPU
    computes their rows and drops the result; a CPU leaves the rows out if `some_ignored`, and can
    have no gradient of them otherwise.
    """
    kind = x_BTD.device.type
    dtype = product_dtype(x_BTD)
    padding = -len(head_VD) % ALIGNED if kind == "cuda" else None
    x_MD = x_BTD.flatten(0, -2)
    targets_M = targets_BT.flatten()
    if some_ignored and kind != "cuda":
        kept = (targets_M != IGNORED).nonzero().squeeze(1)
        x_MD = x_MD[kept]
        targets_M = targets_M[kept]
    rows = rows_at_a_time(
        len(targets_M), len(head_VD), on_gpu=kind == "cuda", compiled=torch.compiler.is_compiling()
    )
    gradient = torch.is_grad_enabled()  # asked here because inside a Function it is always off
    loss: Tensor = _Loss.apply(x_MD, head_VD, targets_M, cap, dtype, padding, rows, gradient)  # type: ignore[assignment]
    return loss * (len(targets_M) / targets_BT.numel()) if some_ignored else loss


def rows_at_a_time(rows: int, vocabulary: int, *, on_gpu: bool, compiled: bool) -> int:
    """The number of rows whose logits are computed at a time.

    A GPU gets pieces of equal size, in multiples that suit its tensor cores. Compiled code there
    holds the logits only in half precision, so its pieces can be larger. Fewer pieces are faster,
    because each one adds a whole gradient of the head.
    """
    most = max(1, (COMPILED_LOGITS if on_gpu and compiled else LOGITS_AT_A_TIME) // vocabulary)
    if not on_gpu:
        return most
    each = -(-rows // -(-rows // most))
    return -(-each // ALIGNED_ROWS) * ALIGNED_ROWS


class _Loss(Function):
    """The summed loss, whose gradient `forward` already computes; `backward` only scales it."""

    @staticmethod
    def forward(  # noqa: PLR0917 (apply takes no keywords)
        ctx: Any,
        x_MD: Tensor,
        head_VD: Tensor,
        targets_M: Tensor,
        cap: float | None,
        dtype: torch.dtype,
        padding: int | None,
        rows: int,
        gradient: bool,
    ) -> Tensor:
        vocabulary = len(head_VD)
        scale = FLOAT16_SCALE if dtype == torch.float16 else 1
        head = F.pad(head_VD.to(dtype), (0, 0, 0, padding or 0))
        total = torch.zeros((), device=x_MD.device)
        by_x = []
        by_head = torch.zeros_like(head_VD) if gradient and ctx.needs_input_grad[1] else None
        for x, targets in zip(x_MD.split(rows), targets_M.split(rows), strict=True):
            x_RD = x.to(dtype)
            logits_RV = (x_RD @ head.T).float()
            if cap is not None:
                logits_RV = softcap(logits_RV, cap)
            if padding is None:
                loss, by_logits_RV = _cross_entropy(logits_RV, targets, cap, gradient)
            else:
                loss, by_logits_RV = _padded_cross_entropy(
                    logits_RV, targets, cap, gradient, vocabulary
                )
            total += loss
            if by_logits_RV is not None:
                by_logits_RV = by_logits_RV.to(dtype)
                by_x.append(by_logits_RV @ head)
                if by_head is not None:
                    by_head.add_(
                        (by_logits_RV.T @ (x_RD if scale == 1 else x_RD / scale))[:vocabulary],
                        alpha=scale,
                    )
        if gradient:
            ctx.save_for_backward(torch.cat(by_x).to(x_MD.dtype), by_head)
        return total / len(targets_M)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        by_x, by_head = ctx.saved_tensors
        each = gradient / len(by_x)
        by_head = None if by_head is None else by_head * each
        return by_x * each.to(by_x.dtype), by_head, None, None, None, None, None, None


def _cross_entropy(
    logits_RV: Tensor, targets_R: Tensor, cap: float | None, gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """The summed loss of R rows, and if asked for its gradient with respect to the uncapped logits.
    It makes few passes over memory. Targets of `IGNORED`, which add nothing, have no gradient."""
    highest_R1 = logits_RV.amax(-1, keepdim=True)
    softmax_RV = (logits_RV - highest_R1).exp_()
    sum_R1 = softmax_RV.sum(-1, keepdim=True)
    at_target_R1 = logits_RV.gather(1, targets_R[:, None].clamp(min=0))
    losses_R1 = sum_R1.log() + highest_R1 - at_target_R1
    loss = losses_R1.masked_fill(targets_R[:, None] == IGNORED, 0.0).sum()
    if not gradient:
        return loss, None
    softmax_RV.div_(sum_R1).scatter_add_(
        1, targets_R[:, None], softmax_RV.new_full((len(targets_R), 1), -1.0)
    )
    return loss, softmax_RV if cap is None else softmax_RV.mul_(1 - (logits_RV / cap).square_())


def _padded_cross_entropy(
    logits_RV: Tensor, targets_R: Tensor, cap: float | None, gradient: bool, vocabulary: int
) -> tuple[Tensor, Tensor | None]:
    """`_cross_entropy` of logits with padding columns after the first `vocabulary` ones; targets of
    `IGNORED` add nothing.

    The compiler makes two kernels of it, each of which reads the logits once. It scatters nothing,
    so the softmax is never written to memory in float32.
    """
    column_V = torch.arange(logits_RV.shape[1], device=logits_RV.device)
    target_R1 = targets_R[:, None]
    masked_RV = logits_RV.masked_fill(column_V >= vocabulary, -torch.inf)
    highest_R1 = masked_RV.amax(-1, keepdim=True)
    power_RV = (masked_RV - highest_R1).exp()
    sum_R1 = power_RV.sum(-1, keepdim=True)
    is_target_RV = column_V == target_R1
    counts_R1 = target_R1 != IGNORED
    at_target_R1 = torch.where(is_target_RV, logits_RV, 0.0).sum(-1, keepdim=True)
    loss = torch.where(counts_R1, sum_R1.log() + highest_R1 - at_target_R1, 0.0).sum()
    if not gradient:
        return loss, None
    softmax_RV = power_RV / sum_R1
    by_logits_RV = torch.where(is_target_RV, softmax_RV - 1, softmax_RV)
    if cap is not None:
        by_logits_RV = by_logits_RV * (1 - (logits_RV / cap).square())
    return loss, torch.where(counts_R1, by_logits_RV, 0.0)
