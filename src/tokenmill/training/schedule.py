"""The steps of a run, and for each step its sequences and its learning rate, computed from the
parameters and the number of the step.

Nothing of this is stored. A run that continues from a checkpoint computes the same values again.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.formats.mixture import Seen, Stretch, seen_of, stretches_of
from tokenmill.formats.token_file import TokenMetadata
from tokenmill.model.config import ModelConfig
from tokenmill.training.params import ScheduleParams, TrainParams


class EpochSampler:
    """The order of the training sequences: a permutation for each epoch, cut into steps."""

    named = "sequences"
    """What the numbers of `indices_at` count, in messages."""

    def __init__(self, *, sequences: int, per_step: int, seed: int):
        """Order `sequences` sequences, `per_step` for each optimizer step; an epoch's last step may
        see fewer."""
        self.sequences = sequences
        self.per_step = per_step
        self.seed = seed
        self.steps_per_epoch = -(-sequences // per_step)
        self._epoch = -1
        self._order = np.empty(0, dtype=np.int64)

    def indices_at(self, step: int) -> np.ndarray:
        """The sequences of `step`, which counts from 0 over all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = self.order_of(epoch)
        return self._order[position * self.per_step : (position + 1) * self.per_step]

    def order_of(self, epoch: int) -> np.ndarray:
        """The numbers of an epoch's sequences in their order, (sequences,) int64."""
        return np.random.default_rng((self.seed, epoch)).permutation(self.sequences)


class WindowSampler(EpochSampler):
    """The order of sequences that are cut from one text, each named by its first token.

    The first epoch cuts the text from its first token on. Every later epoch begins at a token drawn
    from the first `context_length` ones, so that it sees other sequences, and each token at other
    places. The last sequence then overlaps the one before it, so that all epochs have as many.
    """

    named = "sequences from the tokens"

    def __init__(self, *, tokens: int, context_length: int, per_step: int, seed: int):
        """Cut a text of so many `tokens`."""
        self.context_length = context_length
        self._last = tokens - 1 - context_length
        super().__init__(sequences=(tokens - 1) // context_length, per_step=per_step, seed=seed)

    def order_of(self, epoch: int) -> np.ndarray:
        """The first tokens of an epoch's sequences in their order, (sequences,) int64."""
        numbers = super().order_of(epoch)
        first = np.random.default_rng((self.seed, epoch, 1)).integers(self.context_length)
        start = int(first) if epoch else 0
        return np.minimum(start + numbers * self.context_length, self._last)


class MixtureSampler(EpochSampler):
    """The order of sequences that are cut from stretches of one text, each named by its first
    token.

    No sequence reaches beyond its stretch. The sequences of a stretch are a row without end: those
    of a whole text in the order of its first epoch, then those of the second, cut elsewhere, and so
    on. Each epoch takes the next ones of every row, as many as the weight says, and mixes them.
    """

    named = WindowSampler.named

    def __init__(
        self, stretches: Sequence[Stretch], *, context_length: int, per_step: int, seed: int
    ):
        """Cut these stretches, which follow each other in the text."""
        self._rows: list[_SequenceRow] = []
        first = 0
        for one in stretches:
            if count := one.sequences(context_length):
                cut = WindowSampler(
                    tokens=one.tokens, context_length=context_length, per_step=per_step, seed=seed
                )
                self._rows.append(_SequenceRow(first, count, cut))
            first += one.tokens
        sequences = sum(row.count for row in self._rows)
        super().__init__(sequences=sequences, per_step=per_step, seed=seed)

    def order_of(self, epoch: int) -> np.ndarray:
        """The first tokens of an epoch's sequences in their order, (sequences,) int64."""
        found = np.concatenate([row.of_epoch(epoch) for row in self._rows])
        return np.random.default_rng((self.seed, epoch, 2)).permutation(found)


@dataclass(frozen=True)
class _SequenceRow:
    """The sequences of a stretch, one after the other."""

    first: int
    """The first token of the stretch."""
    count: int
    """The sequences of an epoch."""
    cut: WindowSampler

    def of_epoch(self, epoch: int) -> np.ndarray:
        """The first tokens of the sequences that this epoch takes, (count,) int64."""
        begin, whole = epoch * self.count, self.cut.sequences
        times = range(begin // whole, -(-(begin + self.count) // whole))
        found = np.concatenate([self.cut.order_of(time) for time in times])
        skipped = begin - times.start * whole
        return self.first + found[skipped : skipped + self.count]


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

    @property
    def sequences(self) -> int:
        """Sequences of an epoch; the tokens that do not fill one are left out."""
        return self.sampler.sequences

    @property
    def seen(self) -> list[Seen]:
        """How much an epoch sees of each source; empty if all is seen once."""
        return seen_of(self.stretches, self.config.context_length)

    @property
    def tokens_per_epoch(self) -> int:
        """Tokens that an epoch learns from."""
        return self.sequences * self.config.context_length

    @functools.cached_property
    def sampler(self) -> EpochSampler:
        """The order in which the steps see the sequences."""
        order = {"per_step": self.sequences_per_step, "seed": self.train.seed}
        context_length = self.config.context_length
        if self.whole_texts:
            return EpochSampler(sequences=(self.tokens - 1) // context_length, **order)
        if self.stretches:
            return MixtureSampler(self.stretches, context_length=context_length, **order)
        return WindowSampler(tokens=self.tokens, context_length=context_length, **order)

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of an epoch; the last one may be short."""
        return self.sampler.steps_per_epoch

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
