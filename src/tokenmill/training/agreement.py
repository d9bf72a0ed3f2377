"""Whether a compiled model has the gradients of the model that it was made from.

A compiler can be wrong. PyTorch 2.11 once lost every gradient below the head of a model compiled
for a GPU: training went on, and the loss fell to that of a model which looks at one token only.
"""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from tokenmill.core.errors import UserError
from tokenmill.model.device import Compute
from tokenmill.model.gpt import GPT
from tokenmill.model.sequences import Index, Sequences, loss_on
from tokenmill.training.step import MicroBatch

MOST_APART = 0.5
"""How far a gradient may be from the expected one, as a share of the length of that. Rounding to
bfloat16 brings up to 0.03 at 12 layers; a gradient that is lost is 1 away."""

NOISE = 0.001
"""What is smaller than this share of the usual number in all gradients may be rounding."""

LOSS_SCALE = 2.0**10
"""Both losses are multiplied by this, so that no gradient leaves float16's range below."""

MOVED_BY = 0.02
"""The standard deviation of what is added to the weights while gradients are compared. Some weights
begin at zero, and behind them no gradient would be seen."""


def check_gradients(
    model: GPT,
    compiled: GPT,
    sequences: Sequences,
    index: Index,
    *,
    micro_batch: MicroBatch,
    compute: Compute,
) -> None:
    """Compare the gradients of `model` and `compiled`, which share their weights, on the first
    sequence of `index`. The weights stay as they are, and the code is compiled for the shape that
    training needs next.

    Raises:
        UserError: they differ by more than rounding.
    """
    learning = {name: each for name, each in model.named_parameters() if each.requires_grad}
    names, weights = list(learning), list(learning.values())
    with _moved(weights, compute.device):
        # On a CPU the model itself has compiled parts
        with torch.compiler.set_stance("force_eager"):
            expected = _gradients(model, weights, sequences, index[:1], MicroBatch(1), compute)
        found = _gradients(compiled, weights, sequences, index[:1], micro_batch, compute)
    for number, apart in differing(expected, found):
        raise UserError(
            f"runtime.compile: compiled by PyTorch {torch.__version__}, this model has another "
            f"gradient than before ({names[number]}: {apart:.0%} away), and would not "
            "learn what it should; set runtime.compile to off, or install another PyTorch."
        )


def differing(expected: list[Tensor], found: list[Tensor]) -> Iterator[tuple[int, float]]:
    """The numbers of the gradients that differ by more than rounding, each with the distance as a
    share of what was expected."""
    squares = torch.stack([gradient.square().sum() for gradient in expected])
    numbers = sum(gradient.numel() for gradient in expected)
    usual = (squares.sum() / numbers).sqrt().item()
    for number, (gradient, other) in enumerate(zip(expected, found, strict=True)):
        apart = (other - gradient).norm().item()
        length = gradient.norm().item()
        if not apart <= MOST_APART * length + NOISE * usual * gradient.numel() ** 0.5:
            yield number, apart / length if length else float("inf")


@contextlib.contextmanager
def _moved(weights: Sequence[Parameter], device: torch.device) -> Iterator[None]:
    """Inside, noise is added to the weights. A copy in the host's memory brings them back."""
    before = [weight.detach().to("cpu", copy=True) for weight in weights]
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for weight in weights:
            noise = torch.randn(weight.shape, generator=generator, device=device)
            weight.add_(noise, alpha=MOVED_BY)
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, saved in zip(weights, before, strict=True):
                weight.copy_(saved)


def _gradients(  # noqa: PLR0917 (what a step takes)
    model: GPT,
    weights: Sequence[Parameter],
    sequences: Sequences,
    first: Index,
    micro_batch: MicroBatch,
    compute: Compute,
) -> list[Tensor]:
    """The gradients of the loss on a sequence that fills a micro-batch with its copies."""
    while True:
        size = micro_batch.sequences
        copies = np.repeat(first, size)
        try:
            loss = loss_on(model, sequences, copies, micro_batch=size, compute=compute)
            (loss * LOSS_SCALE).backward()
            return [
                torch.zeros_like(weight) if weight.grad is None else weight.grad
                for weight in weights
            ]
        except Exception as error:
            micro_batch.shrink_after(error)
        finally:
            for weight in weights:
                weight.grad = None
