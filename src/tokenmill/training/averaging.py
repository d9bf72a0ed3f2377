"""The average of a run's weights, which `train.average_power` asks for."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

# PyTorch has no public names for its operations on lists of tensors.
# pyright: reportPrivateImportUsage=false
# ruff: noqa: SLF001


class WeightAverage:
    """The average of the weights after all steps, each with the share that
    `Workload.average_weight_at` gives it."""

    def __init__(self, parameters: Iterable[Tensor], *, repeats: bool = False):
        """Begin with the values that the parameters have now. With `repeats` a recorded step will
        be replayed, so that what changes must be in tensors."""
        self._parameters = [parameter.detach() for parameter in parameters]
        self.values = [parameter.clone() for parameter in self._parameters]
        """The average of each parameter, of its shape."""
        self._weight: float | Tensor = 0.0
        if repeats:
            self._weight = torch.zeros((), device=self.values[0].device)

    def set_weight(self, weight: float) -> None:
        """Set the part of the way by which the next step moves the average."""
        if isinstance(self._weight, Tensor):
            self._weight.fill_(weight)
        else:
            self._weight = weight

    @torch.no_grad()
    def add(self, *, unless: Tensor) -> None:
        """Move the average towards the weights of now, unless the scalar tensor `unless` is true. A
        GPU decides that itself."""
        weight = self._weight
        if unless.device.type == "cuda":
            weight = weight * ~unless
        elif unless:
            return
        lerp(self.values, self._parameters, weight)

    @contextmanager
    def exchanged(self) -> Iterator[None]:
        """Within this block the parameters have the average's values, and afterwards their own, bit
        by bit."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for parameter, value in zip(self._parameters, self.values, strict=True):
            kept = parameter.clone()
            parameter.copy_(value)
            value.copy_(kept)


def lerp(values: list[Tensor], towards: list[Tensor], weight: float | Tensor) -> None:
    """Move `values` by the part `weight` of the way, in place."""
    if not isinstance(weight, Tensor):
        torch._foreach_lerp_(values, towards, weight)
        return
    ways = torch._foreach_sub(towards, values)
    torch._foreach_mul_(ways, weight)
    torch._foreach_add_(values, ways)
