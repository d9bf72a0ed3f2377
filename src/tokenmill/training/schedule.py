"""The steps of a run, and for each step its sequences and its learning rate, computed from the
parameters and the number of the step.

Nothing of this is stored. A run that continues from a checkpoint computes the same values again.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.formats.mixture import Seen, Stretch, seen_of, stretches_of
from tokenmill.formats.token_file import TokenMetadata
from tokenmill.model.config import ModelConfig
from tokenmill.training.params import ScheduleParams, TrainParams


def shuffled(sequences: int, *, epoch: int, seed: int) -> np.ndarray:
    """The numbers of an epoch's sequences in their order, (sequences,) int64."""
    return np.random.default_rng((seed, epoch)).permutation(sequences)


def windows(tokens: int, context_length: int, *, epoch: int, seed: int) -> np.ndarray:
    """The first tokens of the sequences that an epoch cuts from one text, in their order,
    (sequences,) int64.

    The first epoch cuts the text from its first token on. Every later epoch begins at a token drawn
    from the first `context_length` ones, so that it sees other sequences, and each token at other
    places. The last sequence then overlaps the one before it, so that all epochs have as many.
    """
    numbers = shuffled((tokens - 1) // context_length, epoch=epoch, seed=seed)
    draw = np.random.default_rng((seed, epoch, 1))
    start = int(draw.integers(context_length)) if epoch else 0
    return np.minimum(start + numbers * context_length, tokens - 1 - context_length)


def mixed(
    stretches: Sequence[Stretch], context_length: int, *, epoch: int, seed: int
) -> np.ndarray:
    """The first tokens of the sequences that an epoch cuts from stretches which follow each other
    in one text, in their order, (sequences,) int64.

    No sequence reaches beyond its stretch. The sequences of a stretch are a row without end: those
    of its `windows` in the first epoch, then those in the second, cut elsewhere, and so on. Each
    epoch takes the next ones of every row, as many as the weight says, and mixes them.
    """
    found = []
    first = 0
    for stretch in stretches:
        if count := stretch.sequences(context_length):
            whole = (stretch.tokens - 1) // context_length
            begin = epoch * count
            times = range(begin // whole, -(-(begin + count) // whole))
            row = [windows(stretch.tokens, context_length, epoch=time, seed=seed) for time in times]
            skipped = begin - times.start * whole
            found.append(first + np.concatenate(row)[skipped : skipped + count])
        first += stretch.tokens
    return np.random.default_rng((seed, epoch, 2)).permutation(np.concatenate(found))


@dataclass(frozen=True)
class Workload:
    """A model, the parameters of its training, and the length of the training text: enough to count
    a run's steps."""

    config: ModelConfig
    train: TrainParams
    tokens: int
    """Tokens of the training split."""
    whole_texts: bool = False
    """Whether each sequence holds whole texts, as in fine-tuning, and so cannot begin elsewhere."""
    stretches: tuple[Stretch, ...] = ()
    """The text by how often it is seen; empty if all of it is seen once in an epoch."""
    learning: int | None = None
    """The number of parameters that learn; None if all do."""

    @classmethod
    def on(
        cls,
        metadata: TokenMetadata,
        config: ModelConfig,
        train: TrainParams,
        mixture: Mapping[str, float] | None,
    ) -> "Workload":
        """The training on tokens that are there, mixed as `data.mixture` says.

        Raises:
            UserError: the tokens cannot be mixed like this.
        """
        runs = metadata.sources("train") if mixture else []
        stretches = stretches_of(runs, mixture, config.context_length)
        return cls(config, train, metadata.train.tokens, stretches=stretches)

    @property
    def sequences_per_step(self) -> int:
        """Sequences that an optimizer step sees on all devices together, if there are as many."""
        return self.train.batch_size * self.train.gradient_accumulation_steps

    @property
    def largest_step(self) -> int:
        """Sequences that the first optimizer step sees; no other one sees more."""
        return min(self.sequences_per_step, self.sequences)

    def sequences_on(self, devices: int) -> int:
        """The most sequences of a step that one of so many devices sees."""
        return -(-self.sequences_per_step // devices)

    @property
    def tokens_per_step(self) -> int:
        """Tokens that an optimizer step sees."""
        return self.largest_step * self.config.context_length

    @functools.cached_property
    def sequences(self) -> int:
        """Sequences of an epoch; the tokens that do not fill one are left out."""
        length = self.config.context_length
        if self.stretches:
            return sum(stretch.sequences(length) for stretch in self.stretches)
        return (self.tokens - 1) // length

    @property
    def seen(self) -> list[Seen]:
        """How much an epoch sees of each source; empty if all is seen once."""
        return seen_of(self.stretches, self.config.context_length)

    @property
    def tokens_per_epoch(self) -> int:
        """Tokens that an epoch learns from."""
        return self.sequences * self.config.context_length

    def order_of(self, epoch: int) -> np.ndarray:
        """The sequences of an epoch in the order of its steps, each named by its first token or,
        with `whole_texts`, by its number; (sequences,) int64."""
        length, seed = self.config.context_length, self.train.seed
        if self.whole_texts:
            return shuffled(self.sequences, epoch=epoch, seed=seed)
        if self.stretches:
            return mixed(self.stretches, length, epoch=epoch, seed=seed)
        return windows(self.tokens, length, epoch=epoch, seed=seed)

    @functools.cached_property
    def _kept_order(self) -> Callable[[int], np.ndarray]:
        """`order_of`, which keeps that of the newest epoch."""
        return functools.lru_cache(maxsize=1)(self.order_of)

    def sequences_at(self, step: int) -> np.ndarray:
        """The sequences of `step`, which counts from 0 over all epochs; see `order_of`."""
        epoch, position = divmod(step, self.steps_per_epoch)
        first = position * self.sequences_per_step
        return self._kept_order(epoch)[first : first + self.sequences_per_step]

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of an epoch; the last one may be short."""
        return -(-self.sequences // self.sequences_per_step)

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.steps_per_epoch * self.train.epochs

    @property
    def full_steps(self) -> float:
        """The work of the whole run, counted in steps of which none is short."""
        return self.tokens_per_epoch * self.train.epochs / self.tokens_per_step

    def learning_rate_at(self, step: int) -> float:
        """The learning rate of `step`, which counts from 0.

        Example: with `wsd`, 10 warm-up steps, 4 epochs of 100 steps and a decay fraction of 0.25,
        the rate rises until step 9, stays until step 299 and then falls to `final_fraction` at step
        399.
        """
        train = self.train
        schedule = train.schedule
        peak = train.peak
        if step < schedule.warmup_steps:
            return peak * (step + 1) / schedule.warmup_steps
        if schedule.type == "constant":
            return peak
        if schedule.type == "power":
            constant = max(schedule.constant_steps or 1, schedule.warmup_steps)
            return peak * min(1.0, constant / (step + 1)) ** schedule.power
        horizon = train.horizon * self.steps_per_epoch
        begin = decay_begin(schedule, horizon)
        if step < begin:
            return peak
        done = min(1.0, (step + 1 - begin) / max(1, horizon - begin))
        remaining = 0.5 * (1 + math.cos(math.pi * done)) if schedule.type == "cosine" else 1 - done
        return peak * (schedule.final_fraction + (1 - schedule.final_fraction) * remaining)

    def average_weight_at(self, step: int) -> float:
        """The part by which `step`, which counts from 0, moves the average of weights towards its
        own; 0 if there is none."""
        power = self.train.average_power
        return 0.0 if power is None else 1 - (step / (step + 1)) ** (power + 1)

    @property
    def pre_decay_step(self) -> int | None:
        """The step at which the rate begins to depend on the number of epochs; None if it never
        does or always did.

        Its checkpoint is kept, so that a later run with more epochs continues exactly from there.
        """
        schedule = self.train.schedule
        if schedule.type != "wsd" or schedule.horizon_epochs is not None:
            return None
        begin = decay_begin(schedule, self.steps)
        return begin if 0 < begin < self.steps else None

    @property
    def kept_steps(self) -> set[int]:
        """The steps whose checkpoints a later run with more epochs may need."""
        return {self.steps} | ({self.pre_decay_step} if self.pre_decay_step is not None else set())


def decay_begin(schedule: ScheduleParams, horizon: int) -> int:
    """The first step of a decay that ends at the step `horizon`: never before the warm-up has
    ended."""
    stable = 0 if schedule.type == "cosine" else round(horizon * (1 - schedule.decay_fraction))
    return max(schedule.warmup_steps, stable)


def same_rates(one: Workload, other: Workload, *, steps: int) -> bool:
    """Whether the first `steps` steps of two runs have the same learning rates.

    Up to there both give the same checkpoints. So continuing from one of them gives exactly what a
    run from scratch gives.
    """
    if one.train.schedule == other.train.schedule and one.train.epochs == other.train.epochs:
        return True
    return all(one.learning_rate_at(s) == other.learning_rate_at(s) for s in range(steps))
