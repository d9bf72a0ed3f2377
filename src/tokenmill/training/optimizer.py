"""The optimizers: AdamW for all parameters, or Muon for hidden matrices and AdamW for the rest.

AdamW is Loshchilov and Hutter 2019. Muon is Jordan et al. 2024, scaled to AdamW's update size as in
Liu et al. 2025, section 2.2. Both follow one learning rate. A loss or gradient that is not finite
never changes a weight; on a GPU the device itself decides that, so the step does not wait for it.
Axes: N matrices of one shape, R rows, C >= R columns; a taller matrix is transposed first.
"""

# PyTorch has no public names for its operations on lists of tensors.
# pyright: reportPrivateImportUsage=false
# ruff: noqa: SLF001

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, zeros_like
from torch.optim.adamw import adamw

from tokenmill.model.device import Compute, multiplies_bfloat16
from tokenmill.model.gpt import GPT, is_hidden_matrix
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
DIVIDE_IN_STEP = ("cpu", "cuda")
"""The devices whose fused AdamW divides by `scale`. The one for Apple GPUs accepts the argument and
ignores it."""
DECIDE_IN_STEP = ("cuda",)
"""The devices that decide by themselves whether an update changes anything, so that the host does
not wait for the answer."""

Rates = Mapping[str, float | Tensor]
"""What changes from step to step: `lr`, `momentum` and `average`."""
Kept = Mapping[Tensor, dict[str, Tensor]]
"""What is kept of each parameter: `step` is a number, all else has the parameter's shape."""


class AdamW:
    """PyTorch's fused AdamW. The function is called, as the methods of its class load PyTorch's
    compiler (1.5 seconds)."""

    keeps = ("step", "exp_avg", "exp_avg_sq")
    """The names of what it keeps of each parameter."""

    def __init__(self, *, beta1: float, beta2: float, decay: float):
        self._beta1 = beta1
        self._beta2 = beta2
        self._decay = decay

    @torch.no_grad()
    def update(
        self,
        parameters: list[Tensor],
        kept: Kept,
        rates: Rates,
        scale: Tensor,
        found_inf: Tensor | None,
    ) -> None:
        """Update parameters from their gradients, which are divided by `scale`. If `found_inf` is
        1, nothing changes."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        divides = scale.device.type in DIVIDE_IN_STEP
        if not divides:
            torch._foreach_div_(gradients, scale)
        steps, means, squares = ([kept[p][name] for p in parameters] for name in self.keeps)
        adamw(
            parameters,
            gradients,
            means,
            squares,
            [],
            steps,
            fused=True,
            grad_scale=scale if divides else None,
            found_inf=found_inf,
            amsgrad=False,
            beta1=self._beta1,
            beta2=self._beta2,
            lr=rates["lr"],
            weight_decay=self._decay,
            eps=1e-8,
            maximize=False,
        )


class Optimizer:
    """Updates each parameter by the rule for it, and saves by its name what is kept of it."""

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
        self.group = group
        self.max_norm = train.gradient_clip
        self._model = model
        self._names: dict[Tensor, str] = {
            p: name for name, p in model.named_parameters() if p.requires_grad
        }
        self.param_groups = [{"params": list(self._names)}]
        """What PyTorch's loss scaler asks of an optimizer."""
        rounds = multiplies_bfloat16(compute.device) and not compute.exact_float32
        precision = torch.bfloat16 if rounds else torch.float32
        muon = Muon(precision, decay=train.weight_decay, group=group, compiler=compiler)
        self._by_rule = _parameters_by_rule(self._names, train, muon, tables=model.ngram_tables)
        self._kept: dict[Tensor, dict[str, Tensor]] = {
            p: {AVERAGE: p.detach().clone()} if train.averages else {} for p in self._names
        }
        for rule, parameters in self._by_rule.items():
            for p in parameters:
                self._kept[p] |= {
                    key: torch.zeros((), device=p.device) if key == "step" else zeros_like(p)
                    for key in rule.keeps
                }
        self._event: torch.Event | None = None
        self._scaler = torch.amp.GradScaler(
            compute.device.type, enabled=compute.precision == torch.float16
        )
        self._halted = torch.zeros((), dtype=torch.bool, device=compute.device)
        # Compiled code and recorded steps keep numbers constant
        changing = repeats or compiler is not None
        in_tensors = {"lr": changing, "momentum": changing, "average": repeats and train.averages}
        self._rates: dict[str, float | Tensor] = {
            name: torch.zeros((), device=compute.device) if is_tensor else 0.0
            for name, is_tensor in in_tensors.items()
        }

    def update_after(self, event: torch.Event | None) -> None:
        """Make the device's next update wait for an event, because what it changes is still being
        read."""
        self._event = event

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of `loss`, scaled up where float16 would round it to zero."""
        self._scaler.scale(loss).backward()

    def set_rates(
        self, learning_rate: float, *, momentum: float = MOMENTUM, average: float = 0.0
    ) -> None:
        """Set the rates of the next update: `momentum` is Muon's, and `average` the part by which
        the average of weights moves."""
        for name, value in (("lr", learning_rate), ("momentum", momentum), ("average", average)):
            rate = self._rates[name]
            self._rates[name] = rate.fill_(value) if isinstance(rate, Tensor) else value

    def wait(self) -> None:
        """Make the device wait now for the event of `update_after`, as the next update does
        anyway."""
        if self._event:
            torch.cuda.current_stream().wait_event(self._event)
            self._event = None

    def step(self, loss: Tensor) -> Tensor:
        """Update the parameters from their gradients, then drop the gradients. With LoRA, also
        compute the weights of its maps again. Return the gradient's global norm, a scalar.

        Gradients are clipped to `train.gradient_clip`. If `loss` (a scalar) or the norm is not
        finite, neither this step nor any later one changes anything, so the weights are still those
        from before when the losses are read. With float16 an overflowing gradient is normal: it
        skips this one update of all parameters and lowers the loss scale.
        """
        self._scaler.unscale_(self)  # type: ignore[arg-type] (it asks for `param_groups` only)
        norm = full_tensor(
            torch.nn.utils.get_total_norm([p.grad for p in self._names if p.grad is not None])
        )
        self.wait()
        overflow = ~norm.isfinite()
        self._halted |= ~loss.isfinite() if self.skips_overflow else overflow | ~loss.isfinite()
        shrink = (norm / self.max_norm).clamp(min=1)
        self._update(shrink, unless=self._halted | overflow)
        self.forget_gradients()
        self._scaler.update()
        self._move_average(unless=self._halted)
        self._renew()
        return norm

    def _update(self, scale: Tensor, *, unless: Tensor) -> None:
        """Update all parameters that have gradients, unless the scalar tensor `unless` is true."""
        found_inf = unless.float() if unless.device.type in DECIDE_IN_STEP else None
        if found_inf is None and unless:
            return
        for rule, parameters in self._by_rule.items():
            if ready := [p for p in parameters if p.grad is not None]:
                rule.update(ready, self._kept, self._rates, scale, found_inf)

    @torch.no_grad()
    def _move_average(self, *, unless: Tensor) -> None:
        """Move the average of weights towards those of now, unless the scalar tensor `unless` is
        true."""
        averages = self._averages()
        weight = self._rates["average"]
        if not averages:
            return
        if unless.device.type in DECIDE_IN_STEP:
            weight = weight * ~unless
        elif unless:
            return
        lerp(averages, [p.detach() for p in self._names], weight)

    def _averages(self) -> list[Tensor]:
        """The average of each parameter; empty if the run keeps none."""
        return [kept[AVERAGE] for kept in self._kept.values() if AVERAGE in kept]

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within this block the model has the average of its weights, if the run keeps one, and
        afterwards its own, bit by bit."""
        if not self._averages():
            yield
            return
        self.wait()
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        """Let weights and averages change places."""
        for parameter, average in zip(self._names, self._averages(), strict=True):
            kept = parameter.clone()
            parameter.copy_(average)
            average.copy_(kept)
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
            name: full_tensor_on_main(
                value if is_sharded(value) or not self.group.shards else value.clone()
            )
            for name, value in self._named().items()
        }
        return tensors | {
            f"/{key}": torch.tensor(value) for key, value in self._scaler.state_dict().items()
        }

    def fits(self, state: dict[str, Tensor]) -> bool:
        """Whether these tensors have the names and shapes of those that `state` returns."""
        own = {name: value.shape for name, value in self._named().items()}
        own |= dict.fromkeys((f"/{key}" for key in self._scaler.state_dict()), torch.Size())
        return own == {name: tensor.shape for name, tensor in state.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Load what `state` returned."""
        for p, kept in self._kept.items():
            for key, own in kept.items():
                value = state[f"{self._names[p]}/{key}"]
                kept[key] = shard_like(value, own).to(own.device, own.dtype)
        if scaler := {name[1:]: state[name].item() for name in state if name.startswith("/")}:
            self._scaler.load_state_dict(scaler)

    def _named(self) -> dict[str, Tensor]:
        """What is kept, by its name in the saved state."""
        return {
            f"{self._names[p]}/{key}": value
            for p, kept in self._kept.items()
            for key, value in kept.items()
        }


def _parameters_by_rule(
    names: Mapping[Tensor, str], train: TrainParams, muon: "Muon", *, tables: tuple[str, ...]
) -> "dict[AdamW | Muon, list[Tensor]]":
    """The parameters by the rule that updates them. With AdamW only matrices decay. Beside Muon
    none of its parameters does, because embeddings and head should not. Only the `tables` of rows
    for pairs and triples of tokens always decay."""
    plain, decaying, of_rows = (
        AdamW(beta1=train.beta1, beta2=train.beta2, decay=factor * train.weight_decay)
        for factor in (0, 1, ROWS_DECAY)
    )
    found: dict[AdamW | Muon, list[Tensor]] = {plain: [], decaying: [], of_rows: [], muon: []}
    for parameter, name in names.items():
        if name in tables:
            rule = of_rows
        elif train.optimizer == "muon":
            rule = muon if is_hidden_matrix(name, parameter) else plain
        else:
            rule = decaying if parameter.ndim >= 2 else plain
        found[rule].append(parameter)
    return found


def momentum_at(step: int) -> float:
    """Muon's momentum in step `step` of the run, counted from 0."""
    return EARLY_MOMENTUM + (MOMENTUM - EARLY_MOMENTUM) * min(1.0, step / EARLY_STEPS)


class Muon:
    """Updates matrices by their orthogonalised mean gradient, with Nesterov momentum and decoupled
    weight decay.

    All matrices of one shape are updated together. PyTorch's own Muon takes one after another,
    which leaves a device idle if matrices are small; with its coefficients, updates are the same.
    The processes of a group share the work: each orthogonalises its part of the matrices.
    """

    keeps = ("momentum_buffer",)

    def __init__(
        self,
        precision: torch.dtype,
        *,
        decay: float,
        group: Group = SINGLE,
        compiler: Callable[[Any], Any] | None = None,
    ):
        """Compute the iteration in `precision`: float32, or bfloat16 where the device multiplies it
        faster and float32 was not asked for by name."""
        self._precision = precision
        self._decay = decay
        self._group = group
        parts: tuple[Callable[..., Any], ...] = (_direction, orthogonal, _move)
        self._direction, self._orthogonal, self._move = map(compiler, parts) if compiler else parts

    @torch.no_grad()
    def update(
        self,
        parameters: list[Tensor],
        kept: Kept,
        rates: Rates,
        scale: Tensor,
        found_inf: Tensor | None,
    ) -> None:
        """Update matrices from their gradients, which may be overwritten; see `AdamW.update`."""
        keep = 1.0 if found_inf is None else 1.0 - found_inf
        for matrices in _group_by_shape(parameters):
            x_NRC = self._direction(
                [p.grad for p in matrices if p.grad is not None],
                [kept[p]["momentum_buffer"] for p in matrices],
                momentum=rates["momentum"],
                scale=scale,
                found_inf=found_inf,
                precision=self._precision,
            )
            update_NRC = self._orthogonal_by_all(x_NRC)
            self._move(matrices, update_NRC, rates["lr"], self._decay, keep)

    def _orthogonal_by_all(self, x_NRC: Tensor) -> Tensor:
        """`orthogonal` of all matrices (N, R, C), of which each process of the group computes its
        part."""
        each = -(-len(x_NRC) // self._group.size)
        mine = x_NRC[self._group.rank * each :][:each]
        return self._group.all_gather(self._orthogonal(mine, self._precision), rows=each)[
            : len(x_NRC)
        ]


def lerp(values: list[Tensor], towards: list[Tensor], weight: float | Tensor) -> None:
    """Move `values` by the part `weight` of the way, in place."""
    if not isinstance(weight, Tensor):
        torch._foreach_lerp_(values, towards, weight)
        return
    ways = torch._foreach_sub(towards, values)
    torch._foreach_mul_(ways, weight)
    torch._foreach_add_(values, ways)


def _direction(
    gradients: list[Tensor],
    means: list[Tensor],
    *,
    momentum: float | Tensor,
    scale: Tensor,
    found_inf: Tensor | None,
    precision: torch.dtype,
) -> Tensor:
    """Add the gradients of N matrices to their running means. Return Nesterov's mixture of both,
    (N, R, C), in `precision`.

    Gradients are divided by `scale`. If `found_inf` is 1, the means stay as they are.
    """
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
