"""What a run has measured so far: rows for its epochs, steps and validations, and the sums for the
next rows.

All of it follows from tokens and parameters, so the same run writes the same bytes on the same kind
of machine. Times are kept apart, in `costs.py`. When a run is finished, metrics/ has its tables;
while it is on, `live.py` shows them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from tokenmill.core.params import Count, Finite, Positive
from tokenmill.formats.records import rounded
from tokenmill.formats.token_file import Sha256
from tokenmill.model.manifest import EPOCH_ADAPTER, WEIGHTS, TrainedWith
from tokenmill.training.params import TrainParams

FIRST_VALIDATION = 50
"""The step of the first validation of a run to a target loss that has no other before it."""
LEAST_GROWTH = 1.05
SECOND_GROWTH = 1.5
MOST_GROWTH = 2.0
"""The step of the next validation of such a run, relative to the last one."""

EpochsDone = Annotated[Finite, Field(gt=0)]
"""The number of epochs done, as a fraction."""


@dataclass(frozen=True)
class EpochRow:
    """The end of an epoch; a row of `metrics/history.csv`."""

    epoch: Positive
    step: Positive
    """Optimizer steps since the start."""
    tokens: Count
    """Tokens trained on since the start."""
    learning_rate: Finite
    """The learning rate of the epoch's last step."""
    train_loss: Finite
    """The mean training loss over the epoch, measured before each update; nats per token."""
    val_loss: Finite
    """The loss on the measured validation text at the epoch's end, in nats per token."""
    val_perplexity: float
    """Infinite where the loss is beyond 700."""
    val_bits_per_byte: Finite


@dataclass(frozen=True)
class StepRow:
    """A few steps; a row of `metrics/steps.csv`."""

    step: Positive
    epoch: EpochsDone
    loss: Finite
    """The mean loss over the sequences since the row before, in nats per token."""
    learning_rate: Finite
    """That of the last step."""
    gradient_norm: float
    """The global norm of the last step's gradient, before clipping."""


@dataclass(frozen=True)
class ValidationRow:
    """A validation. A checkpoint has those within an epoch (`train.validate_every_steps`),
    live/validation.csv also those at its end."""

    step: Positive
    epoch: EpochsDone
    val_loss: Finite
    val_bits_per_byte: Finite


@dataclass
class MeanLoss:
    """A running mean over sequences; the same numbers in the same order give the same bits."""

    total: float = 0.0
    sequences: int = 0

    def add(self, loss: float, sequences: int) -> None:
        """Add the mean loss of a step over this many sequences."""
        self.total += loss * sequences
        self.sequences += sequences

    def take(self) -> float:
        """Return the mean so far, and start the next one from nothing."""
        mean = self.total / self.sequences
        self.total = 0.0
        self.sequences = 0
        return mean


@dataclass
class RunState:
    """The state of a run. With the weights and the optimizer's state it is all that is needed to
    continue."""

    step: int = 0
    """The number of optimizer steps done whose loss was read."""
    tokens: int = 0
    """The number of tokens trained on."""
    epoch_loss: MeanLoss = field(default_factory=MeanLoss)
    interval_loss: MeanLoss = field(default_factory=MeanLoss)
    gradient_norm: float = 0.0
    """The gradient norm of the last step whose loss was read."""
    epochs: list[EpochRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    validations: list[ValidationRow] = field(default_factory=list)
    epoch_weights: list[Sha256] = field(default_factory=list)
    """The SHA-256 of the weights at the end of each epoch."""
    epoch_adapters: list[Sha256] = field(default_factory=list)
    """The SHA-256 of the adapter at the end of each epoch, if the run learns by LoRA."""

    def copied(self) -> "RunState":
        """A copy that does not change with this one. Rows never change."""
        own = {name: [*value] for name, value in vars(self).items() if isinstance(value, list)}
        means = {name: replace(getattr(self, name)) for name in ("epoch_loss", "interval_loss")}
        return replace(self, **own, **means)

    def add_epoch(self, hashes: dict[str, Sha256]) -> None:
        """Record the hashes of the files that are kept of the next epoch."""
        self.epoch_weights.append(hashes[WEIGHTS])
        if EPOCH_ADAPTER in hashes:
            self.epoch_adapters.append(hashes[EPOCH_ADAPTER])

    def epoch_files(self) -> list[dict[str, Sha256]]:
        """For each epoch, the hashes of the files that are kept of it, by name."""
        kept = {WEIGHTS: self.epoch_weights, EPOCH_ADAPTER: self.epoch_adapters}
        return [
            {name: hashes[number] for name, hashes in kept.items() if number < len(hashes)}
            for number in range(len(self.epoch_weights))
        ]

    def ends_at(self, train: TrainParams) -> int | None:
        """The step after which `train.target_loss` or `train.early_stopping` ends the run; None if
        neither does so far."""
        ends = (self.reached_at(train.target_loss), self.stopped_at(train.early_stopping))
        return min((step for step in ends if step is not None), default=None)

    def reached_at(self, loss: float | None) -> int | None:
        """The step of the first validation whose loss is at most `loss`; None if there is none, or
        if `loss` is None."""
        if loss is None:
            return None
        return next((row.step for row in self.validated() if row.val_loss <= loss), None)

    def expected_at(self, loss: float) -> int:
        """The step of the next validation, at which the loss may be at most `loss`.

        The last two losses are prolonged as a line over the logarithm of the step, but not by less
        than a twentieth of the steps done, nor by more than as many again.
        """
        rows = self.validated()
        if not rows:
            return FIRST_VALIDATION
        done = rows[-1].step
        growth = SECOND_GROWTH
        if len(rows) > 1 and (fall := rows[-2].val_loss - rows[-1].val_loss) > 0:
            missing = max(rows[-1].val_loss - loss, 0.0) / fall
            # In logarithms, because the power may be too large for a number
            most = math.log(MOST_GROWTH)
            growth = math.exp(min(missing * math.log(done / rows[-2].step), most))
        return math.ceil(done * max(growth, LEAST_GROWTH))

    def stopped_at(self, patience: int | None) -> int | None:
        """The step at the end of the first epoch whose last `patience` validations brought no lower
        loss than those before them.

        None if there is no such epoch, or if `patience` is None.
        """
        if patience is None:
            return None
        ends = {epoch.step for epoch in self.epochs}
        lowest = math.inf
        since = 0
        for row in self.validated():
            since = 0 if row.val_loss < lowest else since + 1
            lowest = min(lowest, row.val_loss)
            if since >= patience and row.step in ends:
                return row.step
        return None

    def validated(self) -> list[ValidationRow]:
        """All validations, within epochs and at their ends, in the order of their steps."""
        ends = [
            ValidationRow(row.step, row.epoch, row.val_loss, row.val_bits_per_byte)
            for row in self.epochs
        ]
        return sorted([*self.validations, *ends], key=lambda row: row.step)


def train_metrics(row: EpochRow, *, parameters: int) -> dict[str, float]:
    """The contents of `metrics/train.json` at the end of an epoch."""
    return {
        "epoch": row.epoch,
        "steps": row.step,
        "tokens": row.tokens,
        "parameters": parameters,
        "train_loss": rounded(row.train_loss),
        "val_loss": rounded(row.val_loss),
    }


def early_end(train: TrainedWith, epochs: Sequence[EpochRow], last: StepRow) -> str:
    """In words, how a finished run ended at its target, or before its last epoch; empty if it did
    not.

    Args:
        train: its parameters.
        epochs: its epochs, of which the last one may be a part.
        last: its last row of steps.
    """
    if not train.may_end_early:
        return ""
    # The fraction has six digits, too few for the steps of several epochs
    of_first = round(last.step / last.epoch) if len(epochs) == 1 else epochs[0].step
    steps = of_first * train.epochs
    place = f"after step {last.step:,} of {steps:,}"
    if train.target_loss is not None and rounded(epochs[-1].val_loss) <= rounded(train.target_loss):
        return f"at its target (train.target_loss {train.target_loss:g}) {place}"
    return (
        f"early (train.early_stopping {train.early_stopping}) {place}" if last.step < steps else ""
    )
