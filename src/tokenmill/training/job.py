"""What is to be trained, on what, and how; and what follows from that alone: steps, their order, what is kept."""

import functools
from dataclasses import dataclass
from typing import Any

from tokenmill.tokenization.metadata import TokenMetadata
from tokenmill.training.batches import EpochOrder, Windows
from tokenmill.training.compilation import Compilation
from tokenmill.training.device import Compute
from tokenmill.training.divergence import marks
from tokenmill.training.fingerprint import HORIZON
from tokenmill.training.group import Group
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.schedule import decay_begins


@dataclass(frozen=True)
class Job:
    """What is to be trained, on what, and how."""

    train: TrainParams
    runtime: RuntimeParams
    compute: Compute
    compilation: Compilation
    tokens: TokenMetadata
    train_windows: Windows
    val_windows: Windows
    group: Group

    @property
    def per_step(self) -> int:
        """Windows that one optimizer step sees."""
        return self.train.batch_size * self.train.gradient_accumulation_steps

    @functools.cached_property
    def order(self) -> EpochOrder:
        """The order of the training windows."""
        return EpochOrder(windows=self.train_windows.count, per_step=self.per_step, seed=self.train.seed)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.order.steps_per_epoch * self.train.epochs

    @property
    def trunk(self) -> int | None:
        """The step after which the learning rate depends on the number of epochs; its checkpoint is kept."""
        return decay_begins(self.train, steps_per_epoch=self.order.steps_per_epoch)

    def kept_at(self, step: int) -> set[int]:
        """The checkpoints that a run which has come to `step`, or a later one with more epochs, may need."""
        last = {self.total_steps} | ({self.trunk} if self.trunk is not None else set())
        return last.union(*(marks(each, self.train.divergence) for each in {step} | last))

    @property
    def horizon(self) -> dict[str, Any]:
        """The parameters that a later run may change and still go on."""
        return self.train.model_dump(include=HORIZON)
