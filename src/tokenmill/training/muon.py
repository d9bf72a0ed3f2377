"""Muon: the optimizer of hidden matrices, for all matrices of one shape at a time.

Jordan et al. 2024; scaled to AdamW's update size as in Liu et al. 2025, section 2.2. PyTorch's own Muon takes one
matrix after another, which leaves a device idle where matrices are small. With its coefficients, updates are the same.
Axes: N matrices of one shape, R rows, C >= R columns; a taller matrix is transposed first.
"""

# PyTorch has no other names for what it does to lists.
# pyright: reportPrivateImportUsage=false

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor


class UnwrappedOptimizer(torch.optim.Optimizer):
    """A torch Optimizer whose methods do not load PyTorch's compiler, which takes one and a half seconds.

    PyTorch wraps these methods in `torch._disable_dynamo`, which imports `torch._dynamo`. Steps here are never
    compiled, so these are the methods without the wrapping. PyTorch's fused optimizers read the two attributes.
    """

    found_inf: Tensor | None = None
    """A scalar; if it is 1, the step changes nothing."""
    grad_scale: Tensor | None = None
    """A scalar by which the step divides the gradients."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


MOMENTUM = 0.95


EARLY_MOMENTUM, EARLY_STEPS = 0.85, 300
"""The first steps of a run average over fewer gradients, because gradients still change fast (nanochat, 2025)."""


POLAR_EXPRESS = (
    (8.2193, -23.3375, 16.6266),
    (3.9641, -2.8377, 0.5158),
    (3.4368, -2.4752, 0.4762),
    (2.4413, -1.7285, 0.3957),
)
"""Coefficients of a X + b X³ + c X⁵, applied one after the other: singular values from 0.003 to 1 end within a quarter
of 1. They follow from that range as in Amsel et al. 2025, "The Polar Express", section 4; each polynomial allows for
values 2 % beyond its own range, because bfloat16 may round to them and the fifth power would let them grow."""


MAX_STACKED = 2**24
"""Numbers stacked at a time at most: 64 MiB in float32."""


def momentum_at(step: int) -> float:
    """Muon's momentum in a step of the run, counted from 0."""
    return EARLY_MOMENTUM + (MOMENTUM - EARLY_MOMENTUM) * min(1.0, step / EARLY_STEPS)


class Muon(UnwrappedOptimizer):
    """Updates matrices by their orthogonalised mean gradient, with Nesterov momentum and decoupled weight decay.

    A step overwrites the gradients.
    """

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, weight_decay: float, precision: torch.dtype):
        """`precision` is that of the iteration: float32, or bfloat16 where the device multiplies it faster."""
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "momentum": MOMENTUM})
        self._precision = precision

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002 (PyTorch's signature)
        """Update every matrix that has a gradient."""
        keep = 1.0 if self.found_inf is None else 1.0 - self.found_inf
        for group in self.param_groups:
            for matrices in _group_by_shape(p for p in group["params"] if p.grad is not None):
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
        update_NRC = orthogonal(torch.stack([_wide(g) for g in gradients]), self._precision).to(means[0].dtype)
        update_NRC *= keep * (-0.2 * rate * update_NRC.shape[2] ** 0.5)
        torch._foreach_mul_(matrices, 1 - rate * decay * keep)
        torch._foreach_add_([_wide(p) for p in matrices], update_NRC.unbind())

    def _mean(self, matrix: Tensor) -> Tensor:
        """The matrix's mean gradient so far, under the name that PyTorch uses."""
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        return state["momentum_buffer"]


def orthogonal(x_NRC: Tensor, precision: torch.dtype) -> Tensor:
    """Approximately the nearest matrices with orthonormal rows; (N, R, C) with R <= C, computed in `precision`."""
    x = x_NRC.to(precision)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    # The factor alone squares small values, for which bfloat16 is too coarse.
    short = precision == torch.float32 and x.shape[2] >= 2 * x.shape[1]
    return torch.bmm(_factor(torch.bmm(x, x.mT)), x) if short else _iterated(x)


def _iterated(x: Tensor) -> Tensor:
    """X replaced by (a + b X Xᵀ + c (X Xᵀ)²) X, once for each set of coefficients."""
    for a, b, c in POLAR_EXPRESS:
        square = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x


def _factor(square_NRR: Tensor) -> Tensor:
    """The matrix by which `_iterated` multiplies X in all, computed from X Xᵀ: half the work where C is 4 R.

    Each iteration replaces X by P X, and so X Xᵀ by P X Xᵀ P, because P is a polynomial of X Xᵀ and so symmetric.
    """
    square = square_NRR
    product = factor = _polynomial(square, *POLAR_EXPRESS[0])
    for coefficients in POLAR_EXPRESS[1:]:
        square = torch.bmm(torch.bmm(factor, square), factor)
        factor = _polynomial(square, *coefficients)
        product = torch.bmm(factor, product)
    return product


def _polynomial(square_NRR: Tensor, a: float, b: float, c: float) -> Tensor:
    """a + b S + c S² for square matrices S."""
    value = torch.baddbmm(square_NRR, square_NRR, square_NRR, beta=b, alpha=c)
    value.diagonal(dim1=1, dim2=2).add_(a)
    return value


def _wide(matrix: Tensor) -> Tensor:
    """A view of the matrix, transposed if it has more rows than columns."""
    return matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix


def _group_by_shape(matrices: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Lists of matrices that have one shape or its transpose, each of at most MAX_STACKED numbers or of one matrix."""
    by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
    for matrix in matrices:
        by_shape[_wide(matrix).shape].append(matrix)
    for shape, same in by_shape.items():
        most = max(1, MAX_STACKED // shape.numel())
        for start in range(0, len(same), most):
            yield same[start : start + most]
