"""The files that show how a run goes while it is on.

`tokenmill watch` and the plots of DVC and its editors read them. DVC does not track them; they are
in the folder in which the stage runs:

    live/run.json         which run this is, in which process, and how long it will be; removed when
                          it is finished
    live/steps.csv        what metrics/steps.csv will be, so far
    live/validation.csv   every validation so far
"""

import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, TypeVar

import psutil
from pydantic import Field

from tokenmill.core.files import remove, write_json, write_text
from tokenmill.core.params import Count, Section
from tokenmill.core.paths import main_root
from tokenmill.costs import Amount, CostParams
from tokenmill.formats.records import append_rows, read_record, read_whole_rows, write_rows
from tokenmill.formats.token_file import Sha256
from tokenmill.training.history import RunState, StepRow, ValidationRow
from tokenmill.training.schedule import Workload

LIVE_RUN = "run.json"
LIVE_TABLES = {StepRow: "steps.csv", ValidationRow: "validation.csv"}
SIGNAL = Path(".dvc/tmp/exps/run/DVCLIVE_STEP_COMPLETED")
"""The file whose change makes DVC's extension for VS Code draw its plots again (DVCLive's
vscode.py)."""
WRITE_EVERY = 1.0
"""Seconds between two writings of the live tables."""
SAME_START = 0.02
"""Starts of a process that differ by fewer seconds are the same one; Linux counts hundredths."""

LiveRow = TypeVar("LiveRow", StepRow, ValidationRow)
Moment = Annotated[float, Field(ge=0, lt=1 << 40)]
"""Seconds since 1970, or since the machine was started."""


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
    """The seconds that timing.csv counts up to `first_step`; None before the first step is
    over."""
    steps: Annotated[Count, Field(ge=1)]
    """The number of steps of the whole run, unless it ends early."""
    steps_per_epoch: Annotated[Count, Field(ge=1)]
    plan: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
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
            return abs(_start_of(psutil.Process(self.pid)) - self.started) < SAME_START
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
        self._rows = [*state.steps, *state.validated()]
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
                rows = [row for row in self._rows[begin:] if isinstance(row, kind)]
                if begin is None:
                    write_rows(self._folder / name, kind, rows)
                else:
                    append_rows(self._folder / name, rows)
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
    return read_record(path, LiveRun, way_out=_way_out(path)) if path.exists() else None


def read_live_rows(folder: Path, kind: type[LiveRow]) -> list[LiveRow]:
    """The rows of a table so far; none if there is no such file."""
    path = folder / LIVE_TABLES[kind]
    return read_whole_rows(path, kind, way_out=_way_out(path))
