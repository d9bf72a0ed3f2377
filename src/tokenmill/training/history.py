"""What a run has learned so far: a row for each epoch, a row for every few steps, and the sums for the next rows.

All of it follows from tokens and parameters, so the same run writes the same bytes on the same kind of machine. Times
are kept apart, in `costs.py`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, Field

from tokenmill.core import records
from tokenmill.core.files import rounded, write_text
from tokenmill.core.token_file import Sha256
from tokenmill.model.manifest import ADAPTER, WEIGHTS

ANEW = "`dvc repro -f train` makes it"


@dataclass(frozen=True)
class EpochRow:
    """The end of an epoch; a row of `metrics/history.csv`."""

    epoch: int
    step: int
    """Optimizer steps since the start."""
    tokens: int
    """Tokens trained on since the start."""
    learning_rate: float
    """Of the epoch's last step."""
    train_loss: float
    """Mean over the epoch while the model learned, in nats per token."""
    val_loss: float
    """On the fixed validation sequences at the epoch's end, in nats per token."""
    val_perplexity: float
    val_bits_per_byte: float


@dataclass(frozen=True)
class StepRow:
    """The mean of a few steps; a row of `metrics/steps.csv`."""

    step: int
    epoch: float
    """Epochs done, as a fraction."""
    loss: float
    """Mean over the sequences since the row before, in nats per token."""
    learning_rate: float
    gradient_norm: float
    """Of the last step, before clipping."""


@dataclass(frozen=True)
class ValidationRow:
    """A validation within an epoch (`train.validate_every_steps`)."""

    step: int
    epoch: float
    """Epochs done, as a fraction."""
    val_loss: float
    val_bits_per_byte: float


Row = TypeVar("Row", EpochRow, StepRow, ValidationRow)


@dataclass
class MeanLoss:
    """A running mean over sequences; the same numbers in the same order give the same bits."""

    total: float = 0.0
    sequences: Annotated[int, Field(validation_alias=AliasChoices("sequences", "windows"))] = 0
    """Older checkpoints call them windows."""

    def add(self, loss: float, sequences: int) -> None:
        """Count a step's mean loss over some sequences."""
        self.total += loss * sequences
        self.sequences += sequences

    def take(self) -> float:
        """The mean so far; the next one starts from nothing."""
        mean = self.total / self.sequences
        self.total, self.sequences = 0.0, 0
        return mean


@dataclass
class RunState:
    """Where a run is. With the weights and the optimizer's state it is all that is needed to continue."""

    step: int = 0
    """Optimizer steps done."""
    tokens: int = 0
    """Tokens trained on."""
    epoch_loss: MeanLoss = field(default_factory=MeanLoss)
    interval_loss: MeanLoss = field(default_factory=MeanLoss)
    epochs: list[EpochRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    validations: list[ValidationRow] = field(default_factory=list)
    epoch_weights: list[Sha256] = field(default_factory=list)
    """SHA-256 of the weights at the end of each epoch: runs over more and over fewer epochs share their folder."""
    epoch_adapters: list[Sha256] = field(default_factory=list)
    """And of the adapters, if the run learns by LoRA."""

    def add_epoch(self, hashes: dict[str, Sha256]) -> None:
        """Remember the files that are kept of the next epoch."""
        self.epoch_weights.append(hashes[WEIGHTS])
        if ADAPTER in hashes:
            self.epoch_adapters.append(hashes[ADAPTER])

    def epoch_files(self) -> list[dict[str, Sha256]]:
        """The hashes of the files that are kept of each epoch, by their names."""
        adapters = [*({ADAPTER: sha256} for sha256 in self.epoch_adapters), *[{}] * len(self.epoch_weights)]
        return [{WEIGHTS: sha256} | adapter for sha256, adapter in zip(self.epoch_weights, adapters, strict=False)]

    def stopped_at(self, patience: int | None) -> int | None:
        """The end of the first epoch whose last `patience` validations brought no lower loss than those before.

        None if there is no such epoch; with None for the patience there never is.
        """
        rows = sorted([*self.epochs, *self.validations], key=lambda row: row.step)
        for epoch in self.epochs:
            losses = [row.val_loss for row in rows if row.step <= epoch.step]
            if patience and len(losses) > patience and min(losses[-patience:]) >= min(losses[:-patience]):
                return epoch.step
        return None

    def as_json(self) -> dict[str, Any]:
        """Plain values; floats survive JSON bit by bit."""
        return {name: value for name, value in asdict(self).items() if value or name != "epoch_adapters"}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "RunState":
        """The inverse of `as_json`."""
        return records.adapter(cls).validate_python(content)


def train_metrics(row: EpochRow, *, parameters: int) -> dict[str, float]:
    """`metrics/train.json` at the end of an epoch."""
    return {
        "epoch": row.epoch,
        "steps": row.step,
        "tokens": row.tokens,
        "parameters": parameters,
        "train_loss": rounded(row.train_loss),
        "val_loss": rounded(row.val_loss),
    }


def write_rows(path: Path, kind: type[Row], rows: Sequence[Row]) -> None:
    """Write rows as CSV, with six significant digits."""
    import pandas as pd  # noqa: PLC0415 (0.4 s, and training needs it only at its end)

    table = pd.DataFrame([asdict(row) for row in rows], columns=[column.name for column in fields(kind)])
    table = table.map(lambda value: rounded(value) if isinstance(value, float) else value)
    write_text(path, table.to_csv(index=False, lineterminator="\n", na_rep="nan"))


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """The rows of `metrics/history.csv` or `metrics/steps.csv`.

    Raises:
        UserError: the file is missing or is not such a table.
    """
    return records.read_rows(path, kind, way_out=ANEW)


def parse_epochs(content: str, source: str) -> list[EpochRow]:
    """The rows of the history.csv of a revision.

    Raises:
        UserError: it is not such a table.
    """
    return records.parse_rows(content.encode(), EpochRow, source=source, way_out=ANEW)
