"""What a run has learned so far: one row an epoch, one row every few steps, and the sums for the next rows.

All of it follows from tokens and parameters; times are kept apart (`timing.py`), so that the same run gives the same
bytes on the same kind of machine.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from tokenmill.core.errors import UserError
from tokenmill.core.files import rounded, write_text


@dataclass(frozen=True)
class EpochRow:
    """An epoch's end."""

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
    """The mean of a few steps."""

    step: int
    epoch: float
    """Epochs done, as a fraction."""
    loss: float
    """Nats per token, averaged over the sequences since the row before."""
    learning_rate: float
    gradient_norm: float
    """Of the last step, before clipping."""


Row = TypeVar("Row", EpochRow, StepRow)


@dataclass
class MeanLoss:
    """A running mean over sequences; the same numbers in the same order give the same bits."""

    total: float = 0.0
    sequences: int = 0

    def add(self, loss: float, sequences: int) -> None:
        """Count a step's mean loss over so many sequences."""
        self.total += loss * sequences
        self.sequences += sequences

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "MeanLoss":
        """The inverse of `asdict`; older checkpoints call the sequences windows."""
        return cls(content["total"], content.get("sequences", content.get("windows", 0)))

    def take(self) -> float:
        """The mean so far; starts again from nothing."""
        mean = self.total / self.sequences
        self.total, self.sequences = 0.0, 0
        return mean


@dataclass
class RunState:
    """Where a run stands; with the weights and the optimizer's state, all that is needed to go on."""

    step: int = 0
    """Optimizer steps done."""
    tokens: int = 0
    """Tokens trained on."""
    epoch_loss: MeanLoss = field(default_factory=MeanLoss)
    interval_loss: MeanLoss = field(default_factory=MeanLoss)
    epochs: list[EpochRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    epoch_weights: list[str] = field(default_factory=list)
    """SHA-256 of the weights at the end of each epoch: runs over more and over fewer epochs share their folder."""

    def as_json(self) -> dict[str, Any]:
        """Plain values; floats survive JSON bit by bit."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "RunState":
        """The inverse of `as_json`."""
        return cls(
            step=content["step"],
            tokens=content["tokens"],
            epoch_loss=MeanLoss.from_json(content["epoch_loss"]),
            interval_loss=MeanLoss.from_json(content["interval_loss"]),
            epochs=[EpochRow(**row) for row in content["epochs"]],
            steps=[StepRow(**row) for row in content["steps"]],
            epoch_weights=content["epoch_weights"],
        )


def train_metrics(row: EpochRow, *, parameters: int) -> dict[str, float]:
    """`metrics/train.json` as it stands at the end of an epoch."""
    return {
        "epoch": row.epoch,
        "steps": row.step,
        "tokens": row.tokens,
        "parameters": parameters,
        "train_loss": rounded(row.train_loss),
        "val_loss": rounded(row.val_loss),
    }


def write_rows(path: Path, kind: type[EpochRow] | type[StepRow], rows: Sequence[EpochRow] | Sequence[StepRow]) -> None:
    """Write rows as CSV."""
    text = io.StringIO()
    table = csv.DictWriter(text, [column.name for column in fields(kind)], lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow({k: rounded(v) if isinstance(v, float) else v for k, v in asdict(row).items()})
    write_text(path, text.getvalue())


def read_epochs(path: Path) -> list[EpochRow]:
    """The rows of `metrics/history.csv`.

    Raises:
        UserError: the file is missing or is not such a table.
    """
    return _read_rows(path, EpochRow)


def read_steps(path: Path) -> list[StepRow]:
    """The rows of `metrics/steps.csv`.

    Raises:
        UserError: the file is missing or is not such a table.
    """
    return _read_rows(path, StepRow)


def _read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """The inverse of `write_rows`."""
    types: dict[str, Any] = {column.name: column.type for column in fields(kind)}
    what = "epochs" if kind is EpochRow else "steps"
    try:
        with path.open(newline="") as file:
            return [kind(**{name: types[name](cell) for name, cell in row.items()}) for row in csv.DictReader(file)]
    except FileNotFoundError:
        raise UserError(f"{path} is missing; `dvc repro train` makes it.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a table of {what} ({error}); `dvc repro -f train` makes it anew.") from None
