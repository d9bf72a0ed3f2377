"""AdamW (Loshchilov and Hutter 2019) by PyTorch's fused kernel, all parameters of a group in one call.

PyTorch's own class comes to the same call by three layers of lists and checks, which take as long as the kernel where a
model is small.
"""

# PyTorch has no other names for what it does to lists.
# pyright: reportPrivateImportUsage=false

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tokenmill.training.uncompiled import Uncompiled

EPS = 1e-8
"""Added to the root of the mean square."""


class AdamW(Uncompiled):
    """Updates parameters by their mean gradient over the root of its mean square; decay is decoupled from both."""

    def __init__(self, groups: Iterable[dict[str, Any]], *, lr: float, betas: tuple[float, float]):
        """`groups` have `params` and their `weight_decay`."""
        # By `fused`, PyTorch's `load_state_dict` knows that the steps belong on the device.
        super().__init__(groups, {"lr": lr, "betas": betas, "fused": True})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002 (PyTorch's signature)
        """Update every parameter that has a gradient; the gradients are used up."""
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            states = [self._state(p) for p in parameters]
            steps = [state["step"] for state in states]
            torch._foreach_add_(steps, 1)
            if self.found_inf is not None:  # as a list: a single tensor's value would be read, and waited for
                torch._foreach_sub_(steps, [self.found_inf] * len(steps))
            torch._fused_adamw_(
                parameters,
                [p.grad for p in parameters],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=EPS,
                amsgrad=False,
                maximize=False,
                grad_scale=self.grad_scale,
                found_inf=self.found_inf,
            )

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        """Its steps so far, mean gradient and mean square, under PyTorch's names."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state
