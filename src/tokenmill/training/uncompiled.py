"""PyTorch's optimizers as they are where nobody compiles them.

Their methods load PyTorch's compiler to tell it that it shall leave them alone, and with it an algebra system: a second
and a half at the start of every training. Our steps are never compiled, so here the methods are what they wrap.
"""

import inspect

import torch
from torch import Tensor


class Uncompiled(torch.optim.Optimizer):
    """To be inherited from; with what PyTorch's fused optimizers know besides gradients, under the same names."""

    found_inf: Tensor | None = None
    """A scalar, where it is set: nothing changes where it is one."""
    grad_scale: Tensor | None = None
    """A scalar, where it is set: what gradients are divided by."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)
