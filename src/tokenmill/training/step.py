"""One optimizer step, as a function of the model, the optimizer and some sequences. It never waits
for the device."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tokenmill.model.device import Compute
from tokenmill.model.gpt import GPT
from tokenmill.model.sequences import Index, Sequences, loss_on
from tokenmill.training.distributed import without_averaging
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.schedule import Workload


@dataclass(frozen=True)
class StepResult:
    """The outcome of a step, still on the device; reading it waits for the step."""

    loss: Tensor
    """Mean cross-entropy over the step's tokens before the update, in nats; a scalar."""
    gradient_norm: Tensor
    """Global norm of the gradient before clipping; a scalar."""


@dataclass(frozen=True)
class Batch:
    """The sequences of a step, and the seed of its dropout."""

    index: Index
    """The numbers of the step's sequences, (B,) int64."""
    dropout_seed: tuple[int, int] | None = None
    """`train.seed` and the step, from which dropout is drawn; None without dropout."""


def batch_at(work: Workload, step: int) -> Batch:
    """The batch of `step`, which counts from 0."""
    seed = (work.train.seed, step) if work.config.dropout else None
    return Batch(work.sequences_at(step), seed)


class MicroBatch:
    """The number of sequences that go through the model at a time. Here it is fixed, as benchmarks
    need it."""

    def __init__(self, sequences: int):
        self.sequences = sequences

    def shrink_after(self, error: Exception) -> None:
        """Make room for another try after an error in a step that has changed nothing.

        Raises:
            Exception: the error itself, unless it can be mended.
        """
        raise error


def train_step(
    model: GPT,
    optimizer: Optimizer,
    sequences: Sequences,
    batch: Batch,
    *,
    micro_batch: MicroBatch,
    compute: Compute,
) -> StepResult:
    """Update `model` once on a batch of `sequences`, at the optimizer's rates, together with all
    processes of the optimizer's group.

    Every target that counts has the same weight, also in an epoch's short last step. A loss or
    gradient that is not finite changes no weight. If memory runs out before the update, the step
    begins again with a smaller `micro_batch`. If the batch is already on the GPU, nothing is copied
    to it or from it.
    """
    while True:
        try:
            loss = _add_gradients(
                model,
                optimizer,
                sequences,
                batch,
                micro_batch=micro_batch.sequences,
                compute=compute,
            )
            break
        except Exception as error:
            optimizer.forget_gradients()
            micro_batch.shrink_after(error)
    loss = optimizer.group.mean(loss)
    return StepResult(loss=loss, gradient_norm=optimizer.step(loss))


def _add_gradients(
    model: GPT,
    optimizer: Optimizer,
    sequences: Sequences,
    batch: Batch,
    *,
    micro_batch: int,
    compute: Compute,
) -> Tensor:
    """Add up the gradients of this process's part of a batch, `micro_batch` sequences at a time;
    return its mean loss, a scalar."""
    group = optimizer.group
    if batch.dropout_seed is not None:
        seed_dropout(*batch.dropout_seed, device=compute.device, rank=group.rank)
    micro_batches = split_into_micro_batches(
        batch.index,
        micro_batch=micro_batch,
        rank=group.rank,
        size=group.size,
        weigh=sequences.weight,
    )
    loss = torch.zeros((), device=compute.device)
    for number, (part, weight) in enumerate(micro_batches, start=1):
        with without_averaging(model, last=number == len(micro_batches)):
            mean = loss_on(model, sequences, part, micro_batch=micro_batch, compute=compute)
            part_loss = mean * weight
            optimizer.backward(part_loss)
        loss += part_loss.detach()
    return loss


def split_into_micro_batches(
    index: Index, *, micro_batch: int, rank: int, size: int, weigh: Callable[[Index], int] = len
) -> list[tuple[Index, float]]:
    """The part of a step's sequences `index` that process `rank` of `size` computes, `micro_batch`
    at a time.

    Each micro-batch comes with the weight of its mean gradient. The weighted sum, averaged over all
    processes, is the mean over what `weigh` counts in the step's sequences. All processes get the
    same number of micro-batches: one that has nothing left computes a sequence with weight 0.
    """
    parts = np.array_split(index, size) if size > 1 else [index]
    count = -(-len(parts[0]) // micro_batch)
    mine = [
        parts[rank][start : start + micro_batch]
        for start in range(0, count * micro_batch, micro_batch)
    ]
    whole = weigh(index)
    return [(part, size * weigh(part) / whole) if len(part) else (index[:1], 0.0) for part in mine]


def seed_dropout(seed: int, step: int, *, device: torch.device, rank: int = 0) -> None:
    """Seed what draws on `device` with the step's number, so that a run that continues draws the
    same dropout.

    Each process of a group draws its own.
    """
    source = (seed, step, rank) if rank else (seed, step)
    drawn = int(np.random.SeedSequence(source).generate_state(1, np.uint64)[0])
    if device.type == "cpu":
        # `torch.manual_seed` takes half a millisecond for the devices that are not in use
        torch.default_generator.manual_seed(drawn)
    else:
        torch.manual_seed(drawn)
