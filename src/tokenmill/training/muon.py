"""Muon for all matrices of a shape at a time: Jordan et al. 2024, scaled to AdamW's update size (Liu et al. 2025).

PyTorch's own takes one matrix after another, which leaves a device idle where they are small. The formulas are the
same; a test compares. Axes: N matrices of a shape, R rows, C columns.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration that drives singular values towards one (Jordan et al. 2024)."""
ITERATIONS = 5
TOGETHER = 2**24
"""At most so many numbers are stacked at a time: 64 MiB in float32."""


class Muon(torch.optim.Optimizer):
    """Updates matrices by their orthogonalised mean gradient, with Nesterov's momentum and decoupled decay.

    `found_inf`, where it is set, is a scalar as GradScaler gives it to fused AdamW: nothing changes where it is one.
    """

    found_inf: Tensor | None = None

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, weight_decay: float, precision: torch.dtype):
        """`precision` is that of the iteration; it bears bfloat16, which is not faster everywhere."""
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self._precision = precision

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002 (PyTorch's signature)
        """Update every matrix that has a gradient."""
        keep = 1.0 if self.found_inf is None else 1.0 - self.found_inf
        for group in self.param_groups:
            for matrices in _of_a_shape(p for p in group["params"] if p.grad is not None):
                self._update(matrices, group["lr"], group["weight_decay"], keep)

    def _update(self, matrices: list[Tensor], rate: float, decay: float, keep: float | Tensor) -> None:
        means = [self.state[p].setdefault("momentum_buffer", torch.zeros_like(p)) for p in matrices]
        mean_NRC = torch.stack(means)
        gradient_NRC = torch.stack([p.grad for p in matrices if p.grad is not None])
        if self.found_inf is not None:  # averaged with itself, the mean stays exactly what it is
            gradient_NRC = torch.where(self.found_inf.bool(), mean_NRC, gradient_NRC)
        mean_NRC.lerp_(gradient_NRC, 1 - MOMENTUM)
        for mean, value in zip(means, mean_NRC.unbind(), strict=True):
            mean.copy_(value)
        change_NRC = orthogonal(gradient_NRC.lerp_(mean_NRC, MOMENTUM), self._precision).to(mean_NRC.dtype)
        change_NRC *= keep * (-0.2 * rate * max(change_NRC.shape[1:]) ** 0.5)
        for matrix, change in zip(matrices, change_NRC.unbind(), strict=True):
            matrix.mul_(1 - rate * decay * keep).add_(change)


def orthogonal(x_NRC: Tensor, precision: torch.dtype) -> Tensor:
    """Nearly the nearest matrices with orthonormal rows or columns, by Newton and Schulz in `precision`."""
    a, b, c = NEWTON_SCHULZ
    tall = x_NRC.shape[1] > x_NRC.shape[2]
    x = (x_NRC.mT if tall else x_NRC).to(precision)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        square = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def _of_a_shape(matrices: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Matrices of one shape, `TOGETHER` numbers at the most or one matrix."""
    by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
    for matrix in matrices:
        by_shape[matrix.shape].append(matrix)
    for shape, those in by_shape.items():
        most = max(1, TOGETHER // shape.numel())
        for start in range(0, len(those), most):
            yield those[start : start + most]
