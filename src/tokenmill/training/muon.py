"""PyTorch's optimizers as they are where nobody compiles them.

Their methods load PyTorch's compiler to tell it that it shall leave them alone, and with it an algebra system: a second
and a half at the start of every training. Our steps are never compiled, so here the methods are what they wrap.

Muon for all matrices of a shape at a time: Jordan et al. 2024, scaled to AdamW's update size (Liu et al. 2025).

PyTorch's own takes one matrix after another, which leaves a device idle where they are small. With its coefficients the
updates are its own; a test compares. Axes: N matrices of a shape, R rows, C >= R columns; a taller one is worked on
lying.
"""

# PyTorch has no other names for what it does to lists.
# pyright: reportPrivateImportUsage=false

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor


class Uncompiled(torch.optim.Optimizer):
    """A base class with the unwrapped methods, and the two attributes by which PyTorch's fused optimizers take what
    GradScaler found.
    """

    found_inf: Tensor | None = None
    """A scalar; where it is one, the step changes nothing."""
    grad_scale: Tensor | None = None
    """A scalar by which gradients are divided."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


MOMENTUM = 0.95


EARLY_MOMENTUM, EARLY_STEPS = 0.85, 300
"""A run's first steps look back less far, for gradients still change fast (nanochat, Karpathy 2025)."""


QUINTICS = (
    (8.2193, -23.3375, 16.6266),
    (3.9641, -2.8377, 0.5158),
    (3.4368, -2.4752, 0.4762),
    (2.4413, -1.7285, 0.3957),
)
"""Coefficients of a X + b X³ + c X⁵, one after the other, which drive singular values from 0.003 to 1 to within a
quarter of one. Amsel et al. 2025 ("The Polar Express", section 4) say how they follow from that range; each bears
values 2 % beyond its own, for there bfloat16 may round them to, and the fifth power would let them grow."""


TOGETHER = 2**24
"""At most so many numbers are stacked at a time: 64 MiB in float32."""


def momentum_at(step: int) -> float:
    """Muon's momentum in step `step` of a run, counted from 0."""
    return EARLY_MOMENTUM + (MOMENTUM - EARLY_MOMENTUM) * min(1.0, step / EARLY_STEPS)


class Muon(Uncompiled):
    """Updates matrices by their orthogonalised mean gradient, with Nesterov's momentum and decoupled decay.

    The gradients are used up.
    """

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, weight_decay: float, precision: torch.dtype):
        """`precision` is that of the iteration; it bears bfloat16, which is not faster everywhere."""
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "momentum": MOMENTUM})
        self._precision = precision

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002 (PyTorch's signature)
        """Update every matrix that has a gradient."""
        keep = 1.0 if self.found_inf is None else 1.0 - self.found_inf
        for group in self.param_groups:
            for matrices in _of_a_shape(p for p in group["params"] if p.grad is not None):
                self._update(matrices, group["lr"], group["weight_decay"], group["momentum"], keep)

    def _update(self, matrices: list[Tensor], rate: float, decay: float, momentum: float, keep: float | Tensor) -> None:
        means = [self._mean(p) for p in matrices]
        gradients = [p.grad for p in matrices if p.grad is not None]
        if self.grad_scale is not None:
            torch._foreach_div_(gradients, self.grad_scale)
        if self.found_inf is not None:  # averaged with itself, the mean stays exactly what it is
            bad = self.found_inf.bool()
            gradients = [torch.where(bad, mean, g) for mean, g in zip(means, gradients, strict=True)]
        torch._foreach_lerp_(means, gradients, 1 - momentum)
        torch._foreach_lerp_(gradients, means, momentum)
        change_NRC = orthogonal(torch.stack([_wide(g) for g in gradients]), self._precision).to(means[0].dtype)
        change_NRC *= keep * (-0.2 * rate * change_NRC.shape[2] ** 0.5)
        torch._foreach_mul_(matrices, 1 - rate * decay * keep)
        torch._foreach_add_([_wide(p) for p in matrices], change_NRC.unbind())

    def _mean(self, matrix: Tensor) -> Tensor:
        """Its mean gradient so far, under PyTorch's name."""
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        return state["momentum_buffer"]


def orthogonal(x_NRC: Tensor, precision: torch.dtype) -> Tensor:
    """Nearly the nearest matrices with orthonormal rows, R <= C, computed in `precision`."""
    x = x_NRC.to(precision)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    # The short way squares what is small, which bfloat16 does not bear.
    short = precision == torch.float32 and x.shape[2] >= 2 * x.shape[1]
    return torch.bmm(_factor(torch.bmm(x, x.mT)), x) if short else _iterated(x)


def _iterated(x: Tensor) -> Tensor:
    """(a + b X Xᵀ + c (X Xᵀ)²) X, with one set of coefficients after the other."""
    for a, b, c in QUINTICS:
        square = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x


def _factor(square_NRR: Tensor) -> Tensor:
    """What `_iterated` multiplies X by in the end, from X Xᵀ alone: products of R x R, half the work for R x 4 R.

    Where X becomes P X, X Xᵀ becomes P X Xᵀ P; P is a polynomial of X Xᵀ and symmetric.
    """
    square = square_NRR
    product = factor = _polynomial(square, *QUINTICS[0])
    for coefficients in QUINTICS[1:]:
        square = torch.bmm(torch.bmm(factor, square), factor)
        factor = _polynomial(square, *coefficients)
        product = torch.bmm(factor, product)
    return product


def _polynomial(square_NRR: Tensor, a: float, b: float, c: float) -> Tensor:
    """a + b S + c S² of matrices S."""
    value = torch.baddbmm(square_NRR, square_NRR, square_NRR, beta=b, alpha=c)
    value.diagonal(dim1=1, dim2=2).add_(a)
    return value


def _wide(matrix: Tensor) -> Tensor:
    """The matrix, or its transpose if it has more rows than columns; a view."""
    return matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix


def _of_a_shape(matrices: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Matrices of one shape or its transpose, `TOGETHER` numbers at the most or one matrix."""
    by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
    for matrix in matrices:
        by_shape[_wide(matrix).shape].append(matrix)
    for shape, those in by_shape.items():
        most = max(1, TOGETHER // shape.numel())
        for start in range(0, len(those), most):
            yield those[start : start + most]
