"""The optimizers: AdamW for all parameters, or Muon for hidden matrices and AdamW for the rest.

AdamW is Loshchilov and Hutter 2019. Muon is Jordan et al. 2024, scaled to AdamW's update size as in
Liu et al. 2025, section 2.2. Both follow one learning rate. A loss or gradient that is not finite
never changes a weight; on a GPU the device itself decides that, so the step does not wait for it.
Axes: N matrices of one shape, R rows, C >= R columns; a taller matrix is transposed first.
"""

# PyTorch has no public names for its operations on lists of tensors.
# pyright: reportPrivateImportUsage=false
# ruff: noqa: SLF001

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from tokenmill.model.device import Compute, multiplies_bfloat16
from tokenmill.model.gpt import GPT, is_hidden_matrix
from tokenmill.training.averaging import WeightAverage, lerp
from tokenmill.training.distributed import (
    SINGLE,
    Group,
    full_tensor,
    full_tensor_on_main,
    is_sharded,
    shard_like,
)
from tokenmill.training.lora import merge
from tokenmill.training.params import TrainParams

ROWS_DECAY = 10
"""How many times as much as a matrix the rows of pairs and triples of tokens decay. With less they
learn by heart what many epochs repeat."""
RATES = ("lr", "momentum")
"""The options of the optimizers that change from step to step."""
AVERAGE = "average"
"""The name of a parameter's average in the saved state."""
MOMENTUM = 0.95
EARLY_MOMENTUM = 0.85
"""Muon's momentum in the first step. Early steps average over fewer gradients, because gradients
still change fast (nanochat, 2025)."""
EARLY_STEPS = 300
"""The number of steps over which the momentum grows from EARLY_MOMENTUM to MOMENTUM."""
POLAR_EXPRESS = (
    (8.2193, -23.3375, 16.6266),
    (3.9641, -2.8377, 0.5158),
    (3.4368, -2.4752, 0.4762),
    (2.4413, -1.7285, 0.3957),
)
"""Coefficients (a, b, c) of a X + b X³ + c X⁵, applied one after the other: singular values from
0.003 to 1 end within a quarter of 1. They follow from that range as in Amsel et al. 2025, "The
Polar Express", section 4. Each polynomial allows for values 2 % beyond its own range, because
bfloat16 may round to them and the fifth power would let them grow."""
MAX_STACKED = 2**24
"""The most numbers that are stacked at a time: 64 MiB in float32."""
MAX_STACKED_ON_GPU = 2**26
"""The most numbers that are stacked at a time on a GPU, which larger products keep busy: 256
MiB."""


class UnwrappedOptimizer(torch.optim.Optimizer):
    """A torch Optimizer whose methods do not load PyTorch's compiler (1.5 seconds).

    PyTorch wraps these methods in `torch._disable_dynamo`, which imports `torch._dynamo`. Nothing
    here compiles a whole optimizer, so these are the methods without the wrapping. PyTorch's fused
    optimizers read the two attributes below.
    """

    found_inf: Tensor | None = None
    """A scalar tensor. If it is 1, the step changes nothing."""
    grad_scale: Tensor | None = None
    """A scalar tensor by which the step divides the gradients."""
    keeps: tuple[str, ...]
    """The names of what it keeps of each parameter: `step` is a number, all else has its shape."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


DIVIDES_IN_STEP = ("cpu", "cuda")
"""The devices whose fused AdamW divides by `grad_scale`. The one for Apple GPUs accepts the
argument and ignores it."""


class AdamW(UnwrappedOptimizer, torch.optim.AdamW):
    """PyTorch's AdamW, which must be made with `fused=True`. Its step does not load the
    compiler."""

    keeps = ("step", "exp_avg", "exp_avg_sq")
    _fused_step = inspect.unwrap(torch.optim.AdamW.step)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002 (PyTorch's signature)
        """Update every parameter that has a gradient."""
        if self.grad_scale is not None and self.grad_scale.device.type not in DIVIDES_IN_STEP:
            gradients = [
                p.grad for group in self.param_groups for p in group["params"] if p.grad is not None
            ]
            torch._foreach_div_(gradients, self.grad_scale)
            self.grad_scale = None
        self._fused_step()


class Optimizer:
    """One or two PyTorch optimizers that step together and save their state by parameter name."""

    def __init__(
        self,
        model: GPT,
        train: TrainParams,
        compute: Compute,
        *,
        group: Group = SINGLE,
        compiler: Callable[[Any], Any] | None = None,
        repeats: bool = False,
    ):
        """Optimize all parameters of `model` that learn. The model is already on its device.

        Args:
            group: the processes that make the same update.
            compiler: compiles functions of tensors, such as the parts of Muon's update.
            repeats: whether a recorded update will be replayed, so that what changes must be in
                tensors.
        """
        learning = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.group = group
        self.max_norm = train.gradient_clip
        self._model = model
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in learning.items()}
        has_muon = train.optimizer == "muon"
        hidden = {n: p for n, p in learning.items() if has_muon and is_hidden_matrix(n, p)}
        rest = {n: p for n, p in learning.items() if n not in hidden}
        self._optimizers: list[UnwrappedOptimizer] = [
            _adamw(rest, train, tables=model.ngram_tables, capturable=repeats)
        ]
        if hidden:
            rounds = multiplies_bfloat16(compute.device) and not compute.exact_float32
            precision = torch.bfloat16 if rounds else torch.float32
            rates = {"lr": train.peak, "weight_decay": train.weight_decay}
            muon = Muon(
                hidden.values(), **rates, precision=precision, group=group, compiler=compiler
            )
            self._optimizers.append(muon)
        self._average = (
            WeightAverage(learning.values(), repeats=repeats) if train.averages else None
        )
        self._event: torch.Event | None = None
        self._scaler = torch.amp.GradScaler(
            compute.device.type, enabled=compute.precision == torch.float16
        )
        self._halted = torch.zeros((), dtype=torch.bool, device=compute.device)
        self._rates = {
            name: torch.zeros((), device=compute.device) for name in RATES if compiler or repeats
        }
        """Rates in tensors, because compiled code and recorded steps keep numbers constant."""

    def update_after(self, event: torch.Event | None) -> None:
        """Make the device's next update wait for an event, because what it changes is still being
        read."""
        self._event = event

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of `loss`, scaled up where float16 would round it to zero."""
        self._scaler.scale(loss).backward()

    def norm(self) -> Tensor:
        """The gradient's global norm, a scalar."""
        for optimizer in self._optimizers:
            self._scaler.unscale_(optimizer)
        return full_tensor(
            torch.nn.utils.get_total_norm([p.grad for p in self._names if p.grad is not None])
        )

    def set_rates(
        self, learning_rate: float, *, momentum: float = MOMENTUM, average: float = 0.0
    ) -> None:
        """Set the rates of the next update: `momentum` is Muon's, and `average` the part by which
        the average of weights moves."""
        rates: dict[str, Any] = {"lr": learning_rate, "momentum": momentum}
        for name, tensor in self._rates.items():
            tensor.fill_(rates[name])
        rates |= self._rates
        if self._average:
            self._average.set_weight(average)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group.update({name: rate for name, rate in rates.items() if name in group})

    def wait(self) -> None:
        """Make the device wait now for the event of `update_after`, as the next update does
        anyway."""
        if self._event:
            torch.cuda.current_stream().wait_event(self._event)
            self._event = None

    def step(self, *, loss: Tensor, norm: Tensor) -> None:
        """Update the parameters from their gradients, then drop the gradients. With LoRA, also
        compute the weights of its maps again.

        Gradients are clipped to `train.gradient_clip`. If `loss` or the gradient's `norm` (scalars)
        is not finite, neither this step nor any later one changes anything, so the weights are
        still those from before when the losses are read. With float16 an overflowing gradient is
        normal: it skips this one update of all parameters and lowers the loss scale.
        """
        self.wait()
        overflow = ~norm.isfinite()
        self._halted |= ~loss.isfinite() if self.skips_overflow else overflow | ~loss.isfinite()
        skip = self._halted | overflow
        shrink = (norm / self.max_norm).clamp(min=1)
        for optimizer in self._optimizers:
            optimizer.grad_scale = shrink
            _update(optimizer, unless=skip)
        self.forget_gradients()
        self._scaler.update()
        if self._average:
            self._average.add(unless=self._halted)
        self._renew()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within this block the model has the average of its weights, if the run keeps one."""
        if not self._average:
            yield
            return
        self.wait()
        with self._average.exchanged():
            self._renew()
            yield
        self._renew()

    def _renew(self) -> None:
        """Merge what LoRA learned; drop weights that a forward pass alone has left gathered."""
        if self._model.lora:
            merge(self._model)
        if self.group.shards:
            self._model.reshard()  # type: ignore[operator] (what FSDP adds)

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
        """Whether an overflowing gradient skips the update and lowers the loss scale (float16)."""
        return self._scaler.is_enabled()

    def state(self) -> dict[str, Tensor]:
        """The optimizer's state as tensors named `PARAMETER/KEY`, and the loss scaler's as `/KEY`.
        Process 0 gets full tensors, of a sharded model copies."""
        tensors = {
            f"{self._names[p]}/{key}": full_tensor_on_main(
                value if is_sharded(value) or not self.group.shards else value.clone()
            )
            for optimizer in self._optimizers
            for p, entry in optimizer.state.items()
            for key, value in entry.items()
        }
        averages = self._average.values if self._average else ()
        tensors |= {
            f"{name}/{AVERAGE}": full_tensor_on_main(value)
            for name, value in zip(self._names.values(), averages, strict=False)
        }
        return tensors | {
            f"/{key}": torch.tensor(value) for key, value in self._scaler.state_dict().items()
        }

    def fits(self, state: dict[str, Tensor]) -> bool:
        """Whether these tensors have the names and shapes of those that `state` returns."""
        kept = {
            f"{self._names[p]}/{key}": torch.Size() if key == "step" else p.shape
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for p in group["params"]
            for key in optimizer.keeps
        }
        averages = self._names.items() if self._average else ()
        others = {f"{name}/{AVERAGE}": p.shape for p, name in averages}
        others |= dict.fromkeys((f"/{key}" for key in self._scaler.state_dict()), torch.Size())
        found = {name: tensor.shape for name, tensor in state.items()}
        # Before the first update that did not overflow there is nothing to keep
        return found == kept | others or (self.skips_overflow and found == others)

    def load(self, state: dict[str, Tensor]) -> None:
        """Load what `state` returned."""
        by_name: dict[str, dict[str, Tensor]] = {}
        for full, value in state.items():
            name, _, key = full.rpartition("/")
            by_name.setdefault(name, {})[key] = value
        if scaler := by_name.pop("", None):
            self._scaler.load_state_dict({key: value.item() for key, value in scaler.items()})
        if self._average:
            for (p, name), average in zip(self._names.items(), self._average.values, strict=True):
                average.copy_(shard_like(by_name[name].pop(AVERAGE), p))
        for optimizer in self._optimizers:
            content = optimizer.state_dict()
            order = [p for group in optimizer.param_groups for p in group["params"]]
            content["state"] = {
                i: {key: shard_like(value, p) for key, value in by_name[self._names[p]].items()}
                for i, p in enumerate(order)
                if self._names[p] in by_name
            }
            optimizer.load_state_dict(content)


def _update(optimizer: UnwrappedOptimizer, *, unless: Tensor) -> None:
    """Let one optimizer step unless the scalar tensor `unless` is true. The host does not wait for
    its value."""
    if unless.device.type == "cuda":
        optimizer.found_inf = unless.float()
        optimizer.step()
    elif not unless:
        optimizer.step()


def _adamw(
    parameters: dict[str, torch.nn.Parameter],
    train: TrainParams,
    *,
    tables: tuple[str, ...],
    capturable: bool,
) -> AdamW:
    """AdamW with weight decay on matrices only. Beside Muon none of them decays, because embeddings
    and head should not. Only the `tables` of rows for pairs and triples of tokens always decay.

    A `capturable` step can be recorded as a CUDA graph.
    """
    decay = train.weight_decay if train.optimizer == "adamw" else 0.0
    others = [p for name, p in parameters.items() if name not in tables]
    groups = [
        {"params": [p for p in others if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in others if p.ndim < 2], "weight_decay": 0.0},
        {
            "params": [p for name, p in parameters.items() if name in tables],
            "weight_decay": ROWS_DECAY * train.weight_decay,
        },
    ]
    groups = [group for group in groups if group["params"]]
    return AdamW(
        groups, lr=train.peak, betas=(train.beta1, train.beta2), fused=True, capturable=capturable
    )


def momentum_at(step: int) -> float:
    """Muon's momentum in step `step` of the run, counted from 0."""
    return EARLY_MOMENTUM + (MOMENTUM - EARLY_MOMENTUM) * min(1.0, step / EARLY_STEPS)


class Muon(UnwrappedOptimizer):
    """Updates matrices by their orthogonalised mean gradient, with Nesterov momentum and decoupled
    weight decay.

    All matrices of one shape are updated together. PyTorch's own Muon takes one after another,
    which leaves a device idle if matrices are small; with its coefficients, updates are the same.
    The processes of a group share the work: each orthogonalises its part of the matrices. A step
    may overwrite the gradients.
    """

    keeps = ("momentum_buffer",)

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float,
        weight_decay: float,
        precision: torch.dtype,
        group: Group = SINGLE,
        compiler: Callable[[Any], Any] | None = None,
    ):
        """Compute the iteration in `precision`: float32, or bfloat16 where the device multiplies it
        faster and float32 was not asked for by name."""
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "momentum": MOMENTUM})
        self._precision = precision
        self._group = group
        parts: tuple[Callable[..., Any], ...] = (_direction, orthogonal, _move)
        self._direction, self._orthogonal, self._move = map(compiler, parts) if compiler else parts

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002 (PyTorch's signature)
        """Update every matrix that has a gradient."""
        keep = 1.0 if self.found_inf is None else 1.0 - self.found_inf
        for group in self.param_groups:
            for matrices in _group_by_shape(p for p in group["params"] if p.grad is not None):
                gradients = [p.grad for p in matrices if p.grad is not None]
                means = [self._mean(p) for p in matrices]
                x_NRC = self._direction(
                    gradients,
                    means,
                    momentum=group["momentum"],
                    scale=self.grad_scale,
                    found_inf=self.found_inf,
                    precision=self._precision,
                )
                update_NRC = self._orthogonal_by_all(x_NRC)
                self._move(matrices, update_NRC, group["lr"], group["weight_decay"], keep)

    def _orthogonal_by_all(self, x_NRC: Tensor) -> Tensor:
        """`orthogonal` of all matrices (N, R, C), of which each process of the group computes its
        part."""
        each = -(-len(x_NRC) // self._group.size)
        mine = x_NRC[self._group.rank * each :][:each]
        return self._group.all_gather(self._orthogonal(mine, self._precision), rows=each)[
            : len(x_NRC)
        ]

    def _mean(self, matrix: Tensor) -> Tensor:
        """The running mean of the matrix's gradient, under the name that PyTorch uses for it."""
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        return state["momentum_buffer"]


def _direction(
    gradients: list[Tensor],
    means: list[Tensor],
    *,
    momentum: float | Tensor,
    scale: Tensor | None,
    found_inf: Tensor | None,
    precision: torch.dtype,
) -> Tensor:
    """Add the gradients of N matrices to their running means. Return Nesterov's mixture of both,
    (N, R, C), in `precision`.

    Gradients are divided by `scale`. If `found_inf` is 1, the means stay as they are.
    """
    if scale is not None:
        gradients = list(torch._foreach_div(gradients, scale))
    if found_inf is not None:  # averaged with itself, the mean stays exactly what it is
        bad = found_inf.bool()
        gradients = [torch.where(bad, mean, g) for mean, g in zip(means, gradients, strict=True)]
    lerp(means, gradients, 1 - momentum)
    lerp(gradients, means, momentum)
    return torch.stack([_wide(g) for g in gradients]).to(precision)


def _move(
    matrices: list[Tensor],
    update_NRC: Tensor,
    rate: float | Tensor,
    decay: float,
    keep: float | Tensor,
) -> None:
    """Let the matrices decay and move against their orthogonal updates. With `keep` = 0 they stay
    as they are."""
    update_NRC = update_NRC.to(matrices[0].dtype)
    update_NRC *= keep * (-0.2 * rate * update_NRC.shape[2] ** 0.5)
    torch._foreach_mul_(matrices, 1 - rate * decay * keep)
    updates = [u if u.shape == p.shape else u.mT for p, u in zip(matrices, update_NRC, strict=True)]
    torch._foreach_add_(matrices, updates)


def orthogonal(x_NRC: Tensor, precision: torch.dtype) -> Tensor:
    """Approximately the nearest matrices with orthonormal rows, (N, R, C) with R <= C, computed in
    `precision`."""
    x = x_NRC.to(precision)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    # `_factor` squares small singular values, for which bfloat16 is too coarse.
    short = precision == torch.float32 and x.shape[2] >= 2 * x.shape[1]
    return torch.bmm(_factor(torch.bmm(x, x.mT)), x) if short else _iterated(x)


def _iterated(x: Tensor) -> Tensor:
    """Replace X by (a + b X Xᵀ + c (X Xᵀ)²) X for each set of coefficients, one after the other."""
    for a, b, c in POLAR_EXPRESS:
        square = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x


def _factor(square_NRR: Tensor) -> Tensor:
    """The product of all matrices by which `_iterated` multiplies X, computed from X Xᵀ alone.
    Where C is 4 R this is half the work.

    Each iteration replaces X by P X, and so X Xᵀ by P X Xᵀ P, because P is a polynomial of X Xᵀ and
    therefore symmetric.
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
    """Lists of matrices that have one shape or its transpose, each of at most MAX_STACKED numbers
    or of one matrix."""
    by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
    for matrix in matrices:
        by_shape[_wide(matrix).shape].append(matrix)
    for shape, same in by_shape.items():
        limit = MAX_STACKED if same[0].device.type == "cpu" else MAX_STACKED_ON_GPU
        most = max(1, limit // shape.numel())
        for start in range(0, len(same), most):
            yield same[start : start + most]
