"""What a training would need, before anything runs: operations, memory, time, network, tokens for its parameters.

Formulas for the model and the step as this code has them; a test compares the memory with what PyTorch keeps. Times
follow from operations by a rate that is measured or assumed, never from nothing.
"""

from dataclasses import dataclass
from typing import Literal

from tokenmill.model.build import empty_model, is_hidden_matrix
from tokenmill.model.config import ModelConfig
from tokenmill.model.size import Precision, flops_per_token
from tokenmill.training.muon import QUINTICS

ENOUGH = 20.0
"""Tokens per parameter at which a given amount of computing gives the lowest loss (Hoffmann et al. 2022, table 3)."""


REPEATS = 4
"""Epochs over the same text that are about as good as new text (Muennighoff et al. 2023, section 5)."""


HIDDEN_SHARE = 2 / 3
"""Share of a step in which gradients may travel beside the computing: the backward pass is two thirds of it."""


Parallel = Literal["ddp", "fsdp"]
"""Every device has the whole model (Li et al. 2020), or its share of it (Rajbhandari et al. 2020, stage 3)."""


def optimizer_flops(config: ModelConfig, optimizer: Literal["adamw", "muon"]) -> int:
    """Operations of one update that are worth counting: Muon's iterations.

    As they are in bfloat16; the shorter way in float32 takes seven twelfths of them for R x 4 R numbers.
    """
    if optimizer == "adamw":
        return 0
    model = empty_model(config)
    shapes = [sorted(p.shape) for name, p in model.named_parameters() if is_hidden_matrix(name, p)]
    return sum(len(QUINTICS) * (4 * short * short * long + 2 * short**3) for short, long in shapes)


@dataclass(frozen=True)
class Step:
    """One optimizer step on all devices together."""

    compute_seconds: float
    network_bytes: float
    """That each device sends."""
    network_seconds: float
    seconds: float
    """Both, as far as one does not hide behind the other."""


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
) -> Step:
    """A step over `tokens` on so many `devices`.

    Each makes `rate` operations and sends `bandwidth` bytes a second; with DDP it makes the whole update, with FSDP its
    share of it.
    """
    work = tokens * flops_per_token(config) / devices
    update = optimizer_flops(config, optimizer) / (devices if parallel == "fsdp" else 1)
    compute = (work + update) / rate
    sent = network_bytes(config, devices=devices, parallel=parallel, precision=precision)
    network = sent / bandwidth
    return Step(compute, sent, network, compute + max(0.0, network - HIDDEN_SHARE * compute))


def network_bytes(config: ModelConfig, *, devices: int, parallel: Parallel, precision: Precision) -> float:
    """Bytes that each device sends in a step.

    DDP: a ring's all-reduce of float32 gradients, twice their size (Patarasuk and Yuan 2009). FSDP: weights are
    gathered for the forward and again for the backward pass, gradients scattered once (Rajbhandari et al. 2020,
    section 7).
    """
    parameters = sum(parameter.numel() for parameter in empty_model(config).parameters())
    weight = 4 if precision == "float32" else 2
    each = 8 if parallel == "ddp" else 2 * weight + 4
    return each * parameters * (devices - 1) / devices


def verdict(*, parameters: int, tokens: int, epochs: int) -> str:
    """Whether so many `tokens` of text, seen `epochs` times, make sense for a model of so many parameters."""
    seen = tokens * epochs / parameters
    new = tokens * min(epochs, REPEATS) / parameters
    said = f"{seen:.3g} tokens per parameter"
    if new < ENOUGH / 4:
        smaller = _count(tokens * min(epochs, REPEATS) / ENOUGH)
        return f"{said}: little text for this model; take more, or a model of about {smaller} parameters"
    best = f"the {ENOUGH:.0f} that make best use of the computing"
    if seen < ENOUGH / 2:
        return f"{said}: fewer than {best}; train longer, or a smaller model"
    if seen <= 4 * ENOUGH:
        return f"{said}: near {best}"
    return f"{said}: more than {best}; good for a small model that is used much"


def _count(number: float) -> str:
    for size, name in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= size:
            return f"{number / size:.3g} {name}"
    return f"{number:.0f}"
