"""A training as far as numbers follow from it: steps, and nothing that must be computed or read."""

from dataclasses import dataclass

from tokenmill.model.config import ModelConfig
from tokenmill.training.params import TrainParams


@dataclass(frozen=True)
class Workload:
    """A model to train on so much text."""

    config: ModelConfig
    train: TrainParams
    tokens: int
    """To train on, once."""

    @property
    def windows_per_step(self) -> int:
        """That one update sees."""
        return self.train.batch_size * self.train.gradient_accumulation_steps

    @property
    def tokens_per_step(self) -> int:
        """That one update sees."""
        return self.windows_per_step * self.config.context_length

    @property
    def windows(self) -> int:
        """That an epoch visits."""
        return (self.tokens - 1) // self.config.context_length

    @property
    def tokens_per_epoch(self) -> int:
        """That an epoch learns from; the last few, which fill no window, are left out."""
        return self.windows * self.config.context_length

    @property
    def steps_per_epoch(self) -> int:
        """The last one may be short."""
        return -(-self.windows // self.windows_per_step)

    @property
    def steps(self) -> int:
        """Of the whole run."""
        return self.steps_per_epoch * self.train.epochs
