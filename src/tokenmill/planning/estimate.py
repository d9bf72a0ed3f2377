"""The time of a training step on several devices, and whether the text is enough for the model: formulas.

Times follow from floating-point operations and bytes at rates that are measured or assumed. `model.size` has the
operations and the memory of the model itself.
"""

from dataclasses import dataclass
from typing import Literal

from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import empty_model, is_hidden_matrix, parameter_count
from tokenmill.model.size import Precision, flops_per_token
from tokenmill.training.muon import POLAR_EXPRESS

ENOUGH = 20.0
"""Tokens per parameter at which a given computation gives the lowest loss (Hoffmann et al. 2022, table 3)."""


REPEATS = 4
"""Epochs over the same text that are about as good as new text (Muennighoff et al. 2023, section 5)."""


HIDDEN_SHARE = 2 / 3
"""Share of a step in which gradients can travel during the computation: the backward pass is two thirds of it."""


Parallel = Literal["ddp", "fsdp"]
"""Every device has the whole model (Li et al. 2020), or a shard of it (Rajbhandari et al. 2020, stage 3)."""


def optimizer_flops(config: ModelConfig, optimizer: Literal["adamw", "muon"]) -> int:
    """Operations of one update that are worth counting: Muon's iterations, in bfloat16.

    In float32 Muon takes a shorter way: seven twelfths of the operations for a matrix of R x 4 R.
    """
    if optimizer == "adamw":
        return 0
    model = empty_model(config)
    shapes = [sorted(p.shape) for name, p in model.named_parameters() if is_hidden_matrix(name, p)]
    return sum(len(POLAR_EXPRESS) * (4 * short * short * long + 2 * short**3) for short, long in shapes)


@dataclass(frozen=True)
class StepTime:
    """The time of one optimizer step on all devices together."""

    compute_seconds: float
    network_bytes: float
    """Sent by each device."""
    network_seconds: float
    seconds: float
    """Computation, and the part of the network's time that does not hide behind it."""


def step(
    config: ModelConfig,
    *,
    tokens: int,
    optimizer: Literal["adamw", "muon"],
    rate: float,
    devices: int,
    parallel: Parallel,
    precision: Precision,
    bandwidth: float,
) -> StepTime:
    """The time of a step over `tokens` on `devices`.

    Each device makes `rate` operations and sends `bandwidth` bytes per second. With DDP it makes the whole update, with
    FSDP its share of it.
    """
    work = tokens * flops_per_token(config) / devices
    update = optimizer_flops(config, optimizer) / (devices if parallel == "fsdp" else 1)
    compute = (work + update) / rate
    sent = network_bytes(config, devices=devices, parallel=parallel, precision=precision)
    network = sent / bandwidth
    return StepTime(compute, sent, network, compute + max(0.0, network - HIDDEN_SHARE * compute))


def network_bytes(config: ModelConfig, *, devices: int, parallel: Parallel, precision: Precision) -> float:
    """Bytes that each device sends in a step.

    DDP: a ring's all-reduce of float32 gradients, twice their size (Patarasuk and Yuan 2009). FSDP: weights are
    gathered for the forward and again for the backward pass, gradients scattered once (Rajbhandari et al. 2020,
    section 7).
    """
    weight = 4 if precision == "float32" else 2
    each = 8 if parallel == "ddp" else 2 * weight + 4
    return each * parameter_count(config) * (devices - 1) / devices


Balance = Literal["too little text", "short training", "balanced", "long training"]
"""How the tokens suit the model. After long training a small model may still be worth its low cost of use."""


def balance(*, parameters: int, tokens: int, epochs: int) -> Balance:
    """How `tokens` of text, seen `epochs` times, suit a model of so many parameters."""
    seen = tokens * epochs / parameters
    if tokens * min(epochs, REPEATS) / parameters < ENOUGH / 4:
        return "too little text"
    if seen < ENOUGH / 2:
        return "short training"
    return "balanced" if seen <= 4 * ENOUGH else "long training"


def suitable_parameters(*, tokens: int, epochs: int) -> float:
    """The parameters of a model for which so much text is enough."""
    return tokens * min(epochs, REPEATS) / ENOUGH
