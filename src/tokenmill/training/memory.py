"""How much memory a training needs, and what to do where it runs out.

A step's sequences go through the model a few at a time (a micro-batch); fewer of them need less memory and give the
same gradient to rounding. So memory that runs out costs speed, not the run.

How many sequences go through the model at a time: as wished, as memory holds, and as it was found out before.

Whatever it is, a step sees the same sequences and gives the same numbers to rounding.
"""

from typing import Literal, NoReturn

import psutil
import torch

from tokenmill.core.errors import UserError
from tokenmill.model.build import parameter_count
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import Compute
from tokenmill.model.size import memory
from tokenmill.training.checkpoint import Store
from tokenmill.training.distributed import ALONE, Group

ROOM = 0.5
"""What autograd keeps of a micro-batch may take this share of free memory: the backward pass and others need some."""


BYTES_PER_PARAMETER = 16
"""Weight, gradient and AdamW's two moments, in float32."""


def sequences_that_fit(config: ModelConfig, at_most: int, device: torch.device) -> int:
    """`at_most`, or the half, a quarter, … of it that this device's memory should hold.

    Known beforehand for the CPU alone, where memory that runs out ends in a kill more often than in an error. Other
    devices tell in time: there the first step finds out.
    """
    if device.type != "cpu":
        return at_most
    free = psutil.virtual_memory().available
    while at_most > 1 and _of_sequences(config, at_most) > ROOM * free:
        at_most //= 2
    return at_most


def too_large(config: ModelConfig, device: str) -> str:
    """What to tell when not even one sequence fits."""
    model, sequence = parameter_count(config) * BYTES_PER_PARAMETER, _of_sequences(config, 1)
    return (
        f"out of memory on {device} with one sequence at a time: weights, gradients and optimizer need about "
        f"{_size(model)}, a sequence {_size(sequence)}. Take a smaller model.n_layer ({config.n_layer}), model.n_embd "
        f"({config.n_embd}) or model.context_length ({config.context_length}), or a device with more memory."
    )


def _of_sequences(config: ModelConfig, sequences: int) -> int:
    """Bytes that so many sequences take on their way through the model, in float32."""
    need = memory(config, sequences=sequences, precision="float32", optimizer="adamw")
    return need.activations + need.logits


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


class StartAgain(Exception):  # noqa: N818 (not an error: the way out of one)
    """Memory stays taken; a fresh process with a smaller micro-batch goes on from the last checkpoint."""


class MicroBatch:
    """Sequences at a time, for one configuration on one kind of device."""

    def __init__(
        self,
        store: Store,
        wish: Literal["auto"] | int,
        *,
        at_most: int,
        config: ModelConfig,
        compute: Compute,
        group: Group = ALONE,
    ):
        """Begin with what a run under the same `wish` and device ended with, if memory ran out in one.

        `at_most` is what `auto` stands for where memory is plenty. All processes of a group take the smallest that one
        of them can hold.
        """
        self._store, self._config, self._compute, self._group = store, config, compute, group
        self._under = {"micro_batch_size": wish, "device": compute.name, "processes": group.size}
        known = store.micro_batch(under=self._under)
        holds = known or (sequences_that_fit(config, at_most, compute.device) if wish == "auto" else wish)
        self.sequences = self._first = group.smallest(holds)

    def shrink(self) -> str:
        """Halve it, so that the step can be done again, in this process; give a sentence about it.

        Raises:
            StartAgain: there is nothing left to halve, or other processes are in the middle of the step.
            UserError: not even one sequence fits.
        """
        if self.sequences == 1 or self._group.size > 1:
            self.start_again()
        self._halve()
        if self._compute.device.type == "cuda":
            torch.cuda.empty_cache()
        return (
            f"out of memory; doing the step again with a micro-batch of {self.sequences}, the same to rounding "
            f"(remembered; another runtime.micro_batch_size starts afresh)"
        )

    def start_again(self) -> NoReturn:
        """Leave this process for a fresh one with half as many.

        Raises:
            StartAgain: always, unless
            UserError: this process began with a single sequence already.
        """
        if self._first == 1:
            raise UserError(too_large(self._config, self._compute.name))
        self._halve()
        raise StartAgain(
            "out of memory; going on from the last checkpoint in a fresh process with a micro-batch of "
            f"{self.sequences}"
        )

    def _halve(self) -> None:
        self.sequences = max(1, self.sequences // 2)
        self._store.remember_micro_batch(self.sequences, under=self._under)
