"""One optimizer step, and the loss without one: functions of a model and some sequences."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tokenmill.model.device import Compute, is_out_of_memory
from tokenmill.model.gpt import GPT
from tokenmill.model.sequences import Sequences
from tokenmill.model.validation import loss_of
from tokenmill.training.distributed import SINGLE, Group, without_averaging
from tokenmill.training.muon import MOMENTUM
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.sampler import split_into_micro_batches


@dataclass(frozen=True)
class StepResult:
    """What a step leaves to be read later, without waiting for the device now."""

    loss: Tensor
    """Mean cross-entropy over the step's tokens before the update, in nats; a scalar."""
    gradient_norm: Tensor
    """Global norm of the gradient before clipping; a scalar."""


def train_step(
    model: GPT,
    optimizer: Optimizer,
    sequences: Sequences,
    index: np.ndarray,
    *,
    micro_batch: int,
    learning_rate: float,
    gradient_clip: float,
    compute: Compute,
    momentum: float = MOMENTUM,
    group: Group = SINGLE,
) -> StepResult | None:
    """Update `model` once on the sequences `index`, together with the `group`, `micro_batch` at a time.

    Every sequence weighs the same however they are cut, also in an epoch's short last step. A loss or gradient that is
    not finite changes no weight. None where memory does not hold so many sequences at a time: then nothing has changed,
    and the step can be done with a smaller micro-batch.
    """
    mine = split_into_micro_batches(index, micro_batch=micro_batch, rank=group.rank, size=group.size)
    loss = _add_gradients(model, optimizer, sequences, mine, compute=compute)
    if loss is None:
        optimizer.forget_gradients()
        return None
    loss = group.mean(loss)
    norm = optimizer.norm()
    optimizer.step(learning_rate, loss=loss, norm=norm, max_norm=gradient_clip, momentum=momentum)
    return StepResult(loss=loss, gradient_norm=norm)


def _add_gradients(
    model: GPT, optimizer: Optimizer, sequences: Sequences, parts: list[tuple[np.ndarray, float]], *, compute: Compute
) -> Tensor | None:
    """Add up the gradients of sequences with their weights and give their loss, or None where memory ran out."""
    total = torch.zeros((), device=compute.device)
    try:
        for number, (part, weight) in enumerate(parts, start=1):
            with without_averaging(model, last=number == len(parts)):
                with compute.autocast():
                    loss = loss_of(model, *sequences.gather(part)) * weight
                optimizer.backward(loss)
            total += loss.detach()
    except Exception as error:
        if is_out_of_memory(error):
            return None
        raise
    return total


def seed_dropout(seed: int, step: int, *, rank: int = 0) -> None:
    """Make the dropout of a step a function of its number, so that a resumed run draws the same.

    Each process of a group draws its own.
    """
    source = (seed, step, rank) if rank else (seed, step)
    torch.manual_seed(int(np.random.SeedSequence(source).generate_state(1, np.uint64)[0]))
