"""The optimizers: AdamW for all parameters, or Muon for hidden matrices and AdamW for the rest.

AdamW is Loshchilov and Hutter 2019; Muon is in `muon.py`. Both follow one learning rate. A loss or gradient that is not
finite never changes a weight; on a GPU the device itself decides that, so the step does not wait for it.
"""

# PyTorch has no other names for what it does to lists.
# pyright: reportPrivateImportUsage=false

import inspect
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tokenmill.model.device import Compute, multiplies_bfloat16
from tokenmill.model.gpt import GPT, is_hidden_matrix
from tokenmill.training.distributed import full_tensor, full_tensor_on_main, shard_like
from tokenmill.training.muon import MOMENTUM, Muon, UnwrappedOptimizer

if TYPE_CHECKING:
    from tokenmill.training.params import TrainParams


class AdamW(UnwrappedOptimizer, torch.optim.AdamW):
    """PyTorch's AdamW with the fused kernel; its step does not load the compiler."""

    def __init__(self, groups: Iterable[dict[str, Any]], *, lr: float, betas: tuple[float, float]):
        """`groups` have the keys `params` and `weight_decay`."""
        super().__init__(groups, lr=lr, betas=betas, fused=True)

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


class Optimizer:
    """One or two PyTorch optimizers that step together and save their state by parameter name."""

    def __init__(self, model: GPT, train: "TrainParams", compute: Compute):
        """Optimize all parameters of `model`, which already lies on its device."""
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        hidden = {n: p for n, p in model.named_parameters() if train.optimizer == "muon" and is_hidden_matrix(n, p)}
        rest = {n: p for n, p in model.named_parameters() if n not in hidden}
        self._optimizers: list[UnwrappedOptimizer] = [_adamw(rest, train)]
        if hidden:
            precision = torch.bfloat16 if multiplies_bfloat16(compute.device) else torch.float32
            rates = {"lr": train.peak, "weight_decay": train.weight_decay}
            self._optimizers.append(Muon(hidden.values(), **rates, precision=precision))
        self._scaler = torch.amp.GradScaler(compute.device.type, enabled=compute.precision == torch.float16)
        self._halted = torch.zeros((), dtype=torch.bool, device=compute.device)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of `loss`, scaled up where float16 would lose it."""
        self._scaler.scale(loss).backward()

    def norm(self) -> Tensor:
        """The gradient's global norm, a scalar."""
        for optimizer in self._optimizers:
            self._scaler.unscale_(optimizer)
        return full_tensor(torch.nn.utils.get_total_norm([p.grad for p in self._names if p.grad is not None]))

    def step(
        self,
        learning_rate: float,
        *,
        loss: Tensor,
        norm: Tensor,
        max_norm: float = math.inf,
        momentum: float = MOMENTUM,
    ) -> None:
        """Update the parameters from their gradients, then drop the gradients.

        Gradients are clipped to `max_norm`; `momentum` is Muon's. If `loss` or the gradient's `norm` (scalars) is not
        finite, neither this step nor any later one changes anything, so the weights are still those from before when
        the losses are read. With float16 an overflowing gradient is normal: it skips this one update of all parameters
        and lowers the loss scale.
        """
        overflow = ~norm.isfinite()
        self._halted |= ~loss.isfinite() if self.skips_overflow else overflow | ~loss.isfinite()
        skip, shrink = self._halted | overflow, (norm / max_norm).clamp(min=1)
        for optimizer in self._optimizers:
            optimizer.grad_scale = shrink
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
                if "momentum" in group:
                    group["momentum"] = momentum
            _update(optimizer, unless=skip)
        self.forget_gradients()
        self._scaler.update()

    def forget_gradients(self) -> None:
        """Drop the gradients."""
        for parameter in self._names:
            parameter.grad = None

    @property
    def is_hopeless(self) -> bool:
        """Whether gradients overflow float16 even without scaling. Waits for the device."""
        return self._scaler.is_enabled() and self._scaler.get_scale() < 1

    @property
    def skips_overflow(self) -> bool:
        """Whether a gradient that overflows skips the update and lowers the loss scale (float16)."""
        return self._scaler.is_enabled()

    def state(self) -> dict[str, Tensor]:
        """The state as tensors named `PARAMETER/KEY`, and the loss scaler's as `/KEY`; full tensors in process 0."""
        tensors = {
            f"{self._names[p]}/{key}": full_tensor_on_main(value)
            for p, entry in self._entries()
            for key, value in entry.items()
        }
        return tensors | {f"/{key}": torch.tensor(value) for key, value in self._scaler.state_dict().items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Load what `state` returned."""
        by_name: dict[str, dict[str, Tensor]] = {}
        for full, value in state.items():
            name, _, key = full.rpartition("/")
            by_name.setdefault(name, {})[key] = value
        if scaler := by_name.pop("", None):
            self._scaler.load_state_dict({key: value.item() for key, value in scaler.items()})
        for optimizer in self._optimizers:
            content = optimizer.state_dict()
            order = [p for group in optimizer.param_groups for p in group["params"]]
            content["state"] = {
                i: {key: shard_like(value, p) for key, value in by_name[self._names[p]].items()}
                for i, p in enumerate(order)
                if self._names[p] in by_name
            }
            optimizer.load_state_dict(content)

    def _entries(self) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        for optimizer in self._optimizers:
            yield from optimizer.state.items()


def _update(optimizer: UnwrappedOptimizer, *, unless: Tensor) -> None:
    """Let one optimizer step unless the scalar `unless` is true."""
    if unless.device.type == "cuda":
        _update_without_waiting(optimizer, unless)
    elif not unless:
        optimizer.step()


def _update_without_waiting(optimizer: UnwrappedOptimizer, unless: Tensor) -> None:
    """Let the device itself read `unless`, which it may not have computed yet."""
    optimizer.found_inf = unless.float()
    optimizer.step()


def _adamw(parameters: dict[str, torch.nn.Parameter], train: "TrainParams") -> AdamW:
    """AdamW with weight decay on matrices only; beside Muon nothing decays, because embeddings and head should not."""
    decay = train.weight_decay if train.optimizer == "adamw" else 0.0
    groups = [
        {"params": [p for p in parameters.values() if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in parameters.values() if p.ndim < 2], "weight_decay": 0.0},
    ]
    return AdamW([group for group in groups if group["params"]], lr=train.peak, betas=(train.beta1, train.beta2))
