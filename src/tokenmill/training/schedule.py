"""The learning rate, computed from the step and stored nowhere.

A training as far as numbers follow from it: steps, and nothing that must be computed or read.
"""

import math
from dataclasses import dataclass

from tokenmill.model.config import ModelConfig
from tokenmill.training.params import TrainParams


def lr_at(step: int, *, train: TrainParams, steps_per_epoch: int) -> float:
    """The learning rate of step `step` (counted from 0).

    Example: with `wsd`, 10 warm-up steps, 4 epochs of 100 steps and a decay fraction of 0.25, the rate rises until
    step 9, stays until step 299 and then falls to `final_fraction` at step 399.
    """
    schedule = train.schedule
    peak = train.peak
    if step < schedule.warmup_steps:
        return peak * (step + 1) / schedule.warmup_steps
    if schedule.type == "constant":
        return peak
    horizon = (schedule.horizon_epochs or train.epochs) * steps_per_epoch
    begin = schedule.warmup_steps if schedule.type == "cosine" else round(horizon * (1 - schedule.decay_fraction))
    if step < begin:
        return peak
    done = min(1.0, (step + 1 - begin) / max(1, horizon - begin))
    remaining = 0.5 * (1 + math.cos(math.pi * done)) if schedule.type == "cosine" else 1 - done
    return peak * (schedule.final_fraction + (1 - schedule.final_fraction) * remaining)


def first_difference(old: TrainParams, new: TrainParams, *, steps_per_epoch: int, before: int) -> int:
    """The first step at which two schedules part, or `before` if they agree on all steps under it.

    A checkpoint up to this step is the same whichever schedule led to it: going on from there gives exactly what the
    new schedule gives from scratch.
    """
    if old.schedule == new.schedule and old.epochs == new.epochs:
        return before
    same = (
        lr_at(s, train=old, steps_per_epoch=steps_per_epoch) == lr_at(s, train=new, steps_per_epoch=steps_per_epoch)
        for s in range(before)
    )
    return next((step for step, agrees in enumerate(same) if not agrees), before)


def pre_decay_step(train: TrainParams, *, steps_per_epoch: int) -> int | None:
    """The step from which the rate depends on the number of epochs, or None if it never does or always did.

    A checkpoint kept there (the trunk) lets a later run with more epochs go on exactly.
    """
    schedule = train.schedule
    if schedule.type != "wsd" or schedule.horizon_epochs is not None:
        return None
    total = train.epochs * steps_per_epoch
    begin = max(schedule.warmup_steps, round(total * (1 - schedule.decay_fraction)))
    return begin if 0 < begin < total else None


@dataclass(frozen=True)
class Workload:
    """A model to train on so much text."""

    config: ModelConfig
    train: TrainParams
    tokens: int
    """To train on, once."""

    @property
    def sequences_per_step(self) -> int:
        """That one update sees."""
        return self.train.batch_size * self.train.gradient_accumulation_steps

    @property
    def tokens_per_step(self) -> int:
        """That one update sees."""
        return self.sequences_per_step * self.config.context_length

    @property
    def sequences(self) -> int:
        """That an epoch visits."""
        return (self.tokens - 1) // self.config.context_length

    @property
    def tokens_per_epoch(self) -> int:
        """That an epoch learns from; the last few, which fill no sequence, are left out."""
        return self.sequences * self.config.context_length

    @property
    def steps_per_epoch(self) -> int:
        """The last one may be short."""
        return -(-self.sequences // self.sequences_per_step)

    @property
    def steps(self) -> int:
        """Of the whole run."""
        return self.steps_per_epoch * self.train.epochs
