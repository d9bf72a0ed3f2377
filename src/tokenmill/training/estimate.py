"""What a training would need, before anything runs: operations, memory, time, network, tokens for its parameters.

Formulas for the model and the step as this code has them; a test compares the memory with what PyTorch keeps. Times
follow from operations by a rate that is measured or assumed, never from nothing.
"""

import math
from dataclasses import dataclass
from typing import Literal

from tokenmill.model.build import is_hidden_matrix, skeleton
from tokenmill.model.config import ModelConfig
from tokenmill.model.loss import LOGITS_AT_A_TIME
from tokenmill.training.flops import flops_per_token
from tokenmill.training.muon import QUINTICS

ENOUGH = 20.0
"""Tokens per parameter at which a given amount of computing gives the lowest loss (Hoffmann et al. 2022, table 3)."""
REPEATS = 4
"""Epochs over the same text that are about as good as new text (Muennighoff et al. 2023, section 5)."""
HIDDEN_SHARE = 2 / 3
"""Share of a step in which gradients may travel beside the computing: the backward pass is two thirds of it."""

Precision = Literal["float32", "half"]
Parallel = Literal["ddp", "fsdp"]
"""Every device has the whole model (Li et al. 2020), or its share of it (Rajbhandari et al. 2020, stage 3)."""


@dataclass(frozen=True)
class Memory:
    """Bytes on one device at the height of a step."""

    weights: int
    """In float32, with copies in half precision where matrix products run in it."""
    gradients: int
    optimizer: int
    activations: int
    logits: int
    """What the loss holds at a time: some logits, their gradient, and what is made of them, all in float32."""

    @property
    def total(self) -> int:
        """All of it; the allocator and the libraries take some more."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits


def memory(
    config: ModelConfig,
    *,
    windows: int,
    precision: Precision,
    optimizer: Literal["adamw", "muon"],
    recompute: bool = False,
    shards: int = 1,
) -> Memory:
    """Memory of one device that takes so many `windows` through the model at a time.

    `recompute`: only the input of every block is kept and the rest computed again (Chen et al. 2016). `shards`: devices
    that share weights, gradients and optimizer state (FSDP).
    """
    model = skeleton(config)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    hidden = sum(sizes[name] for name, parameter in model.named_parameters() if is_hidden_matrix(name, parameter))
    total, tokens = sum(sizes.values()), windows * config.context_length
    moments = 2 * total - (hidden if optimizer == "muon" else 0)
    if precision == "half":
        copies = 2 * hidden
    else:  # the matrices of queries, keys and values, put together for one product
        copies = 12 * config.n_layer * config.n_embd**2 if config.architecture == "modern" else 0
    return Memory(
        weights=math.ceil(4 * total / shards) + copies // shards,
        gradients=math.ceil(4 * total / shards),
        optimizer=math.ceil(4 * moments / shards),
        activations=tokens * _activation_bytes(config, precision, recompute=recompute),
        logits=min(tokens * config.vocab_size, LOGITS_AT_A_TIME) * 4 * (3 if config.architecture == "modern" else 2),
    )


def _activation_bytes(config: ModelConfig, precision: Precision, *, recompute: bool) -> int:
    """Bytes that one token leaves for the backward pass, logits aside.

    A block of `gpt2` keeps 2 widths in float32 (the inputs of its norms) and 14 in the products' precision: 1 normed,
    3 queries, keys and values, 1 attended, 1 normed, 4 before and 4 behind GELU. `modern` keeps 19: what its 2 norms
    give instead of what they got, 2 normed and 2 rotated queries and keys and 1 copy of what was attended more; in half
    precision it keeps what it normed in float32, too. At the end are the last norm's and, taken at once, the gradient
    of its output.
    """
    cell, width = (4 if precision == "float32" else 2), config.n_embd
    if config.architecture == "gpt2":
        block, ends = (8 + 14 * cell) * width, 8 * width
    else:
        block, ends = (19 * cell + (8 if precision == "half" else 0)) * width, 12 * width
    if config.dropout:
        block += 2 * width  # one byte for each element of two masks
    block += 4 * config.n_head + 16  # sums of exponentials, means and deviations
    return 4 * width * config.n_layer + block + ends if recompute else block * config.n_layer + ends


def optimizer_flops(config: ModelConfig, optimizer: Literal["adamw", "muon"]) -> int:
    """Operations of one update that are worth counting: Muon's iterations.

    As they are in bfloat16; the shorter way in float32 takes seven twelfths of them for R x 4 R numbers.
    """
    if optimizer == "adamw":
        return 0
    model = skeleton(config)
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
    parameters = sum(parameter.numel() for parameter in skeleton(config).parameters())
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
