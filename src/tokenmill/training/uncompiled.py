"""PyTorch's optimizers without their preparations for `torch.compile`.

PyTorch wraps `step` and these methods to keep its compiler away from them. The wrapping imports the compiler, and with
it sympy: 1.5 s at every start of a training. Here an optimizer is never compiled, so the wrapped functions are called
directly.
"""

import inspect

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
