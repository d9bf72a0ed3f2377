"""PyTorch's optimizers as they are where nobody compiles them.

Their methods load PyTorch's compiler to tell it that it shall leave them alone, and with it an algebra system: a second
and a half at the start of every training. Our steps are never compiled, so here the methods are what they wrap.
"""

import inspect

import torch


class Uncompiled(torch.optim.Optimizer):
    """To be inherited from before an optimizer of PyTorch's."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class AdamW(Uncompiled, torch.optim.AdamW):
    """Loshchilov and Hutter 2019."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
