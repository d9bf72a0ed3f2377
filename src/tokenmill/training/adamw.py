"""AdamW (Loshchilov and Hutter 2019): PyTorch's own, as it is where it is not compiled."""

import inspect
from collections.abc import Iterable
from typing import Any

import torch

from tokenmill.training.uncompiled import Uncompiled


class AdamW(Uncompiled, torch.optim.AdamW):
    """PyTorch's AdamW with the fused kernel, whose step does not load the compiler."""

    def __init__(self, groups: Iterable[dict[str, Any]], *, lr: float, betas: tuple[float, float]):
        """`groups` have `params` and their `weight_decay`."""
        super().__init__(groups, lr=lr, betas=betas, fused=True)

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
