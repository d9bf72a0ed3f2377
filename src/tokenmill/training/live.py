"""Files that tell how a run goes while it is on: for `tokenmill watch`, and for the plots of DVC and its editors.

    live/run.json         which run this is, in which process, and how long it will be
    live/steps.csv        what metrics/steps.csv will be, so far
    live/validation.csv   every validation so far

They are in the folder in which the stage runs, and DVC tracks none of them. When the run is finished, metrics/ has the
record; run.json goes, and the tables stay for the plots until the next run. DVC's extension for VS Code draws its plots
again when SIGNAL changes (DVCLive's vscode.py).
"""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import TypeVar

import psutil
from pydantic import Field

from tokenmill.core.files import rounded, write_json, write_text
from tokenmill.core.params import Section
from tokenmill.core.paths import resume_root
from tokenmill.core.records import parse_rows, read_record
from tokenmill.costs import CostParams
from tokenmill.training.history import RunState, StepRow, ValidationRow

RUN, TABLES = "run.json", {StepRow: "steps.csv", ValidationRow: "validation.csv"}
SIGNAL = Path(".dvc/tmp/exps/run/DVCLIVE_STEP_COMPLETED")
WRITE_EVERY = 1.0
"""Seconds between two writings."""

Row = TypeVar("Row", StepRow, ValidationRow)


class LiveRun(Section):
    """What `live/run.json` says of a run."""

    fingerprint: str = Field(pattern="^[0-9a-f]{16}$")
    """Names its folder of checkpoints in `.resume/`."""
    pid: int
    started: float
    """When the process started, in Unix time; a later process may have the same id, but not the same start."""
    began: float
    """When this session's first step began, in Unix time."""
    first_step: int
    """Steps done before this session."""
    steps: int
    """Of the whole run, unless it ends early."""
    steps_per_epoch: int
    plan: list[list[str]]
    """Names and facts, as training prints them at its start."""
    cost: CostParams

    @property
    def is_on(self) -> bool:
        """Whether its process still runs, on this machine."""
        with contextlib.suppress(psutil.Error):
            return abs(psutil.Process(self.pid).create_time() - self.started) < 1
        return False


class LiveFiles:
    """Writes the files of a run into `folder`; without one it does nothing. No error here stops training."""

    def __init__(self, folder: Path | None):
        self._folder = folder
        self._rows: list[StepRow | ValidationRow] = []
        self._written_at = 0.0

    def start(
        self,
        state: RunState,
        *,
        fingerprint: str,
        steps: int,
        per_epoch: int,
        plan: Sequence[tuple[str, str]],
        cost: CostParams,
    ) -> None:
        """Write what the run has behind it."""
        if self._folder is None:
            return
        process = psutil.Process()
        run = LiveRun(
            fingerprint=fingerprint,
            pid=process.pid,
            started=process.create_time(),
            began=time.time(),
            first_step=state.step,
            steps=steps,
            steps_per_epoch=per_epoch,
            plan=[list(line) for line in plan],
            cost=cost,
        )
        ends = [ValidationRow(row.step, row.epoch, row.val_loss, row.val_bits_per_byte) for row in state.epochs]
        with contextlib.suppress(OSError):
            shutil.rmtree(self._folder, ignore_errors=True)
            for kind, name in TABLES.items():
                write_text(self._folder / name, ",".join(column.name for column in fields(kind)) + "\n")
            write_json(self._folder / RUN, run.model_dump())
        self._rows = [*state.steps, *sorted([*state.validations, *ends], key=lambda row: row.step)]
        self._write()

    def add(self, row: StepRow | ValidationRow) -> None:
        """Add a row to its table, which is written about once a second."""
        self._rows.append(row)
        if time.monotonic() - self._written_at >= WRITE_EVERY:
            self._write()

    def close(self, *, finished: bool) -> None:
        """Write the last rows; remove the signal and, if the run is finished, `run.json`."""
        self._write()
        with contextlib.suppress(OSError):
            _signal().unlink(missing_ok=True)
            if finished and self._folder:
                (self._folder / RUN).unlink(missing_ok=True)

    def _write(self) -> None:
        rows, self._rows, self._written_at = self._rows, [], time.monotonic()
        if self._folder is None or not rows:
            return
        with contextlib.suppress(OSError):
            for kind, name in TABLES.items():
                with (self._folder / name).open("a", newline="\n") as file:
                    file.writelines(_line(row) for row in rows if isinstance(row, kind))
            if _signal().parents[3].is_dir():
                _signal().parent.mkdir(parents=True, exist_ok=True)
                _signal().write_text(json.dumps({"pid": os.getpid(), "step": rows[-1].step}, sort_keys=True))


def _line(row: StepRow | ValidationRow) -> str:
    return ",".join(str(rounded(value) if isinstance(value, float) else value) for value in astuple(row)) + "\n"


def _signal() -> Path:
    """In the main repository, also where DVC runs a stage in a temporary copy."""
    return resume_root().parent / SIGNAL


def read_live_run(folder: Path) -> LiveRun | None:
    """The run whose files are in `folder`, if there are any.

    Raises:
        UserError: the file is damaged.
    """
    return read_record(folder / RUN, LiveRun, way_out="remove the folder") if (folder / RUN).exists() else None


def read_live_rows(folder: Path, kind: type[Row]) -> list[Row]:
    """The rows of a table so far, without one that is being written; none if there is no such file.

    Raises:
        UserError: the file is damaged.
    """
    path = folder / TABLES[kind]
    content = path.read_bytes() if path.exists() else b""
    return parse_rows(content[: content.rfind(b"\n") + 1], kind, source=path, way_out="remove the folder")
