"""What a run has measured so far: rows for its epochs, steps and validations, the sums for the next
rows, and the tables of these rows.

All of it follows from tokens and parameters, so the same run writes the same bytes on the same kind
of machine. Times are kept apart, in `costs.py`. When a run is finished, metrics/ has its tables.
While it is on, `tokenmill watch` and the plots of DVC and its editors read files that DVC does not
track, in the folder in which the stage runs:

    live/run.json         which run this is, in which process, and how long it will be; removed when
                          it is finished
    live/steps.csv        what metrics/steps.csv will be, so far
    live/validation.csv   every validation so far
"""

import contextlib
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, TypeVar

import psutil
from pydantic import Field

from tokenmill.core.files import (
    append_text,
    csv_line,
    read_bytes,
    remove,
    rounded,
    write_json,
    write_text,
)
from tokenmill.core.params import Finite, Section
from tokenmill.core.paths import main_root
from tokenmill.costs import Amount, CostParams
from tokenmill.formats import records
from tokenmill.formats.token_file import Sha256
from tokenmill.model.manifest import EPOCH_ADAPTER, WEIGHTS, TrainedWith
from tokenmill.training.params import TrainParams
from tokenmill.training.schedule import Workload

SIGNAL = Path(".dvc/tmp/exps/run/DVCLIVE_STEP_COMPLETED")
"""The file whose change makes DVC's extension for VS Code draw its plots again (DVCLive's
vscode.py)."""
WRITE_EVERY = 1.0
"""Seconds between two writings of the live tables."""
FIRST_VALIDATION = 50
"""The step of the first validation of a run to a target loss that has no other before it."""
LEAST_GROWTH = 1.05
SECOND_GROWTH = 1.5
MOST_GROWTH = 2.0
"""The step of the next validation of such a run, relative to the last one."""
SAME_START = 0.02
"""Starts of a process that differ by fewer seconds are the same one; Linux counts hundredths."""


Count = Annotated[int, Field(ge=0, lt=1 << 53)]
Moment = Annotated[float, Field(ge=0, lt=1 << 40)]
"""Unix time."""


@dataclass(frozen=True)
class EpochRow:
    """The end of an epoch; a row of `metrics/history.csv`."""

    epoch: Count
    step: Count
    """Optimizer steps since the start."""
    tokens: Count
    """Tokens trained on since the start."""
    learning_rate: float
    """The learning rate of the epoch's last step."""
    train_loss: float
    """The mean training loss over the epoch, measured before each update; nats per token."""
    val_loss: float
    """The loss on the measured validation text at the epoch's end, in nats per token."""
    val_perplexity: float
    val_bits_per_byte: float


@dataclass(frozen=True)
class StepRow:
    """The mean of a few steps; a row of `metrics/steps.csv`."""

    step: Count
    epoch: Finite
    """The number of epochs done, as a fraction."""
    loss: Finite
    """The mean loss over the sequences since the row before, in nats per token."""
    learning_rate: Finite
    gradient_norm: float
    """The global norm of the last step's gradient, before clipping."""


@dataclass(frozen=True)
class ValidationRow:
    """A validation. A checkpoint has those within an epoch (`train.validate_every_steps`),
    live/validation.csv also those at its end."""

    step: Count
    epoch: Finite
    """The number of epochs done, as a fraction."""
    val_loss: float
    val_bits_per_byte: float


Row = TypeVar("Row", EpochRow, StepRow, ValidationRow)
LIVE_RUN = "run.json"
LIVE_TABLES = {StepRow: "steps.csv", ValidationRow: "validation.csv"}


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
        adapters = [
            *({EPOCH_ADAPTER: sha256} for sha256 in self.epoch_adapters),
            *[{}] * len(self.epoch_weights),
        ]
        return [
            {WEIGHTS: sha256} | adapter
            for sha256, adapter in zip(self.epoch_weights, adapters, strict=False)
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
        return next((row.step for row in self._validated() if row.val_loss <= loss), None)

    def expected_at(self, loss: float) -> int:
        """The step of the next validation, at which the loss may be at most `loss`.

        The last two losses are prolonged as a line over the logarithm of the step, but not by less
        than a twentieth of the steps done, nor by more than as many again.
        """
        rows = self._validated()
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
        for row in self._validated():
            since = 0 if row.val_loss < lowest else since + 1
            lowest = min(lowest, row.val_loss)
            if since >= patience and row.step in ends:
                return row.step
        return None

    def _validated(self) -> "list[EpochRow | ValidationRow]":
        """The rows of all validations, in the order of their steps."""
        return sorted([*self.epochs, *self.validations], key=lambda row: row.step)


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


def write_rows(path: Path, kind: type[Row], rows: Sequence[Row]) -> None:
    """Write rows as CSV, with six significant digits."""
    write_text(path, _head(kind) + "".join(map(_csv, rows)))


def _head(kind: type[EpochRow | StepRow | ValidationRow]) -> str:
    return csv_line(column.name for column in fields(kind))


def _csv(row: EpochRow | StepRow | ValidationRow) -> str:
    return csv_line(astuple(row))


def _way_out(path: Path) -> str:
    return f"`rm {quote(str(path))}`: the next training writes it anew"


class LiveRun(Section):
    """The contents of `live/run.json`."""

    fingerprint: str = Field(pattern="^[0-9a-f]{16}$")
    """The name of the run's folder in `.resume/`."""
    pid: Annotated[int, Field(ge=1, lt=1 << 31)]
    started: Moment
    """When the process started, as `_start_of` says. A later process may have the same id, but not
    the same start."""
    began: Moment
    """When this session began to load the model, in Unix time."""
    first_step: Count
    """The number of steps that were done then; after its first step, which also compiles, one
    more."""
    first_seconds: Amount | None = None
    """The seconds that timing.csv counts up to `first_step`; None before that first step is over,
    and in a file of an earlier version."""
    steps: Annotated[Count, Field(ge=1)]
    """The number of steps of the whole run, unless it ends early."""
    steps_per_epoch: Annotated[Count, Field(ge=1)]
    plan: list[list[str]]
    """Pairs of a name and a fact, as training prints them at its start."""
    cost: CostParams
    saved: Count = 0
    """The step of the newest checkpoint, from which the run continues; 0 before there is one."""
    epoch_weights: list[Sha256] = Field(default_factory=list)
    """The SHA-256 of the weights at the end of each epoch, as this checkpoint names them."""
    diverged: str = ""
    """Where training diverged, and the way out: `in step 7; lower …`. Empty if it did not."""

    @property
    def is_on(self) -> bool:
        """Whether its process still runs, on this machine."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.pid)
            if abs(_start_of(process) - self.started) < SAME_START:
                return True
            # An earlier version wrote Unix time
            return abs(process.create_time() - self.started) < 1
        return False


def _start_of(process: psutil.Process) -> float:
    """When a process started, in seconds that do not change when the clock is set.

    On Linux these are seconds since the boot. What psutil adds there to make Unix time of them
    changes with the clock; elsewhere the system has noted the time.
    """
    return process.create_time() - (psutil.boot_time() if psutil.LINUX else 0.0)


class LiveFiles:
    """Writes a run's files into `folder`, if there is one. An error here never stops training."""

    def __init__(self, folder: Path | None):
        self._folder = folder
        self._run: LiveRun | None = None
        self._rows: list[StepRow | ValidationRow] = []
        # How many of the rows the tables have; None if the tables are to be written anew
        self._written: int | None = 0
        self._written_at = 0.0

    def start(
        self,
        state: RunState,
        work: Workload,
        *,
        fingerprint: str,
        plan: Sequence[tuple[str, str]],
        cost: CostParams,
    ) -> None:
        """Write `run.json` and the rows of the run so far."""
        if self._folder is None:
            return
        process = psutil.Process()
        self._run = LiveRun(
            fingerprint=fingerprint,
            pid=process.pid,
            started=_start_of(process),
            began=time.time(),
            first_step=state.step,
            saved=state.step,
            epoch_weights=[*state.epoch_weights],
            steps=work.steps,
            steps_per_epoch=work.steps_per_epoch,
            plan=[list(line) for line in plan],
            cost=cost,
        )
        ends = [
            ValidationRow(row.step, row.epoch, row.val_loss, row.val_bits_per_byte)
            for row in state.epochs
        ]
        self._rows = [*state.steps, *sorted([*state.validations, *ends], key=lambda row: row.step)]
        with contextlib.suppress(OSError):
            remove(self._folder)
            self._written = None
            self._write()
            write_json(self._folder / LIVE_RUN, self._run.model_dump())

    def began(self, step: int, *, seconds: float) -> None:
        """Let the remaining time be reckoned from this step on, after which timing.csv counts so
        many seconds; the first one, which compiles, is over."""
        self._change(first_step=step, first_seconds=seconds)

    def saved(self, state: RunState) -> None:
        """Tell what the newest checkpoint holds, which is on disk now. Nothing else changes
        `run.json` while one is written."""
        self._change(saved=state.step, epoch_weights=[*state.epoch_weights])

    def diverged(self, where: str) -> None:
        """Tell where training diverged, until the run starts again. See `LiveRun.diverged`."""
        self._change(diverged=where)

    def add(self, row: StepRow | ValidationRow) -> None:
        """Add a row to its table, which is written about once a second."""
        self._rows.append(row)
        if time.monotonic() - self._written_at >= WRITE_EVERY:
            self._write()

    def close(self, *, finished: bool = False) -> None:
        """Write the last rows; remove the signal and, if the run is finished, `run.json`."""
        self._write()
        with contextlib.suppress(OSError):
            _signal().unlink(missing_ok=True)
            if finished and self._folder:
                (self._folder / LIVE_RUN).unlink(missing_ok=True)

    def _change(self, **values: Any) -> None:
        """Write `run.json` with other values."""
        if self._folder and self._run:
            self._run = self._run.model_copy(update=values)
            with contextlib.suppress(OSError):
                write_json(self._folder / LIVE_RUN, self._run.model_dump())

    def _write(self) -> None:
        """Append the new rows to the tables; after an error, which may have cut a row, write the
        tables anew."""
        begin = self._written
        self._written_at = time.monotonic()
        if self._folder is None or begin == len(self._rows):
            return
        self._written = None
        with contextlib.suppress(OSError):
            for kind, name in LIVE_TABLES.items():
                lines = "".join(_csv(row) for row in self._rows[begin:] if isinstance(row, kind))
                if begin is None:
                    write_text(self._folder / name, _head(kind) + lines)
                else:
                    append_text(self._folder / name, lines)
            self._written = len(self._rows)
            if self._rows and _signal().parents[3].is_dir():
                _signal().parent.mkdir(parents=True, exist_ok=True)
                last = self._rows[-1].step
                content = json.dumps({"pid": os.getpid(), "step": last}, sort_keys=True)
                write_text(_signal(), content)


def _signal() -> Path:
    """The path of SIGNAL in the main repository, also where DVC runs a stage in a temporary
    copy."""
    return main_root() / SIGNAL


def read_live_run(folder: Path) -> LiveRun | None:
    """The run whose files are in `folder`, if there are any."""
    path = folder / LIVE_RUN
    return records.read_record(path, LiveRun, way_out=_way_out(path)) if path.exists() else None


def read_live_rows(folder: Path, kind: type[Row]) -> list[Row]:
    """The rows of a table so far, without a row that is still being written; none if there is no
    such file."""
    path = folder / LIVE_TABLES[kind]
    content = read_bytes(path) if path.exists() else b""
    return records.parse_rows(
        content[: content.rfind(b"\n") + 1], kind, source=path, way_out=_way_out(path)
    )
