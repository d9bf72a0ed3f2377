"""Find trainings that are not finished: in the workspace, in a run with `--temp`, or in a queue.

DVC removes a stage's outputs before the stage runs, and stores the new ones when it ends. In
between there are only the files in `live/` and the checkpoints in `.resume/`.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.costs import Cost, TimingRow, find_times, read_timing, spent
from tokenmill.formats.records import read_record
from tokenmill.model.manifest import MANIFEST, WEIGHTS
from tokenmill.training.history import StepRow, ValidationRow
from tokenmill.training.identity import NUMERICS_VERSION, read_identity
from tokenmill.training.live import LiveRow, LiveRun, read_live_rows, read_live_run


class _ExperimentInfo(BaseModel):
    """The fields that are read of DVC's file about a running experiment of the queue."""

    name: Annotated[str, Field(pattern=r"^[\w.-]{1,100}$")]
    root_dir: str


@dataclass(frozen=True)
class UnderWay:
    """A training, as its files describe it at one moment."""

    root: Path
    """The folder of the project."""
    folder: Path
    """The folder in which the stage runs: the root, or a temporary copy of it."""
    where: str
    """The place in words: `this workspace`, `the experiment bonny-bani`."""
    name: str | None
    """The name of the experiment, or of a copy whose experiment has no name yet; None in the
    workspace."""
    run: LiveRun
    steps: Sequence[StepRow]
    validations: Sequence[ValidationRow]
    damage: str = ""
    """A sentence about a damaged table, which is shown as an empty one."""

    @property
    def is_on(self) -> bool:
        """Whether its process still runs, on this machine."""
        return self.run.is_on

    @property
    def step(self) -> int:
        """The last step that is known to be done; when the process has ended, the step from which
        the run continues."""
        if not self.is_on:
            return self.run.saved
        shown = [rows[-1].step for rows in (self.steps, self.validations) if rows]
        return max([self.run.first_step, self.run.saved, *shown])

    def last(self) -> "UnderWay":
        """This training with the last rows of its tables, which stay when it is finished. If
        another run began meanwhile, it is returned unchanged."""
        live = self.folder / paths.LIVE
        with contextlib.suppress(UserError, OSError):
            if read_live_run(live) is None and (steps := read_live_rows(live, StepRow)):
                run = self.run.model_copy(update={"saved": steps[-1].step})
                return replace(
                    self, run=run, steps=steps, validations=read_live_rows(live, ValidationRow)
                )
        return self

    def again(self) -> "UnderWay":
        """This training as its files describe it now; unchanged if they are gone."""
        return _read(self.root, self.folder, self.where, self.name) or self

    @property
    def epoch_ends(self) -> list[ValidationRow]:
        """The validation at the end of each finished epoch."""
        last, per_epoch = self.step, self.run.steps_per_epoch
        return [row for row in self.validations if row.step <= last and row.step % per_epoch == 0]

    @property
    def checkpoints(self) -> Path:
        """The run's folder of checkpoints."""
        return self.root / paths.resume_root() / self.run.fingerprint

    @property
    def epochs(self) -> list[Path]:
        """The folders of the weights at the end of each epoch up to the newest checkpoint."""
        return [
            paths.epoch_folder(self.checkpoints, epoch, sha256)
            for epoch, sha256 in enumerate(self.run.epoch_weights, start=1)
        ]

    @property
    def tokenizer(self) -> Path:
        """The path of tokenizer.json."""
        return self.folder / paths.TOKENIZER

    def weights(self) -> tuple[int, Path] | None:
        """The step and the folder of the newest weights on disk; None if there are none. Other
        checkpoints belong to runs over more or fewer epochs.

        If a run learns by LoRA, its checkpoints have no weights, but its epochs do.
        """
        epochs = enumerate(self.epochs, start=1)
        newest = [
            *((epoch * self.run.steps_per_epoch, folder) for epoch, folder in epochs),
            *(one for one in paths.step_folders(self.checkpoints) if one[0] == self.run.saved),
        ]
        found = [one for one in newest if (one[1] / WEIGHTS).exists()]
        return max(found, key=lambda one: one[0], default=None)

    def seconds_left(self) -> float | None:
        """Seconds until the end at this session's speed, with validations and checkpoints; None if
        it is not known."""
        first, since = self.run.first_step, self.run.first_seconds
        sums = [(row.step, row.seconds) for row in self._timing if first <= row.step <= self.step]
        if since is not None:
            sums = [(first, since), *(one for one in sums if one[0] > first and one[1] > since)]
        if len(sums) < 2:
            return None
        done, taken = sums[-1][0] - sums[0][0], sums[-1][1] - sums[0][1]
        return taken / done * (self.run.steps - self.step)

    def spent(self) -> tuple[Cost, float | None]:
        """The cost of all sessions so far, and the tokens per second now, if they are known."""
        rows = self._timing
        return (spent(rows), rows[-1].tokens_per_second) if rows else (Cost(), None)

    @functools.cached_property
    def _timing(self) -> list[TimingRow]:
        """The table of what the run's steps took."""
        with contextlib.suppress(UserError):  # a damaged table is reported elsewhere
            return read_timing(find_times(self.root / paths.resume_root(), self.run.fingerprint))
        return []

    @property
    def sentence(self) -> str:
        """A sentence about where the training is, or where it stopped or diverged."""
        damage = f" ({self.damage})" if self.damage else ""
        return self.told(
            f"step {self.step:,} of {self.run.steps:,}, epoch {self.epoch:.2f}{damage}"
        )

    @property
    def epoch(self) -> float:
        """The number of epochs done, as a fraction."""
        return self.step / self.run.steps_per_epoch

    @property
    def way_on(self) -> str:
        """The command that goes on, or begins a training that may not diverge."""
        return "dvc exp run -S train.learning_rate=LOWER" if self.run.diverged else "dvc repro"

    def told(self, place: str) -> str:
        """The sentence, with the place in these words."""
        if self.is_on:
            return f"training is under way in {self.where}: {place}"
        if self.run.diverged:
            return f"the training in {self.where} diverged {self.run.diverged}"
        way_on = "the same `dvc exp run` continues it"
        numerics = read_identity(self.checkpoints).get("numerics", NUMERICS_VERSION)
        if numerics != NUMERICS_VERSION:
            way_on = "only a checkout of the version of TokenMill that began it continues it"
        elif self.name is None:
            way_on = f"`dvc repro` or {way_on}"
        return f"the training in {self.where} stopped at {place}; {way_on}"


def under_way(root: Path) -> UnderWay | None:
    """The training in the workspace of the project at `root`, on or stopped; None if no training
    there is unfinished."""
    return _read(root, root, "this workspace", None)


def is_finished(root: Path) -> bool:
    """Whether the work tree has a trained model. DVC removes it when a training begins."""
    return (root / paths.MODEL / MANIFEST).exists()


def unfinished(root: Path) -> UnderWay | None:
    """The workspace's training of the model, on or stopped; None if the model is finished."""
    return None if is_finished(root) else under_way(root)


def all_under_way(root: Path) -> list[UnderWay]:
    """All unfinished trainings of a project: first those that are on, then the newest."""
    found = [under_way(root)]
    found += [_read(root, copy, where, name) for copy, where, name in copies(root)]
    return sorted(filter(None, found), key=lambda one: (not one.is_on, -one.run.began))


def copies(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield the copies of a project in which DVC runs experiments, each with the place in words and
    the name as in `UnderWay`."""
    names = _running_experiments(root)
    for place in (root / paths.COPIES, root / paths.COPIES / "standalone"):
        for copy in place.glob("*/"):
            name = names.get(copy.name, copy.name)
            kind = "experiment" if copy.name in names else "copy"
            yield copy, f"the {kind} {name}", name


def _read(root: Path, folder: Path, where: str, name: str | None) -> UnderWay | None:
    live = folder / paths.LIVE
    try:
        run = read_live_run(live)
    # Finished at this very moment, or damaged: only DVC's own record counts
    except (UserError, OSError):
        return None
    steps, problem = _rows(live, StepRow)
    validations, other = _rows(live, ValidationRow)
    damage = problem or other
    return UnderWay(root, folder, where, name, run, steps, validations, damage) if run else None


def _rows(live: Path, kind: type[LiveRow]) -> tuple[list[LiveRow], str]:
    """The rows of a table; or none, and what is wrong with it."""
    try:
        return read_live_rows(live, kind), ""
    except (UserError, OSError) as error:
        return [], str(error).rstrip(".")


def _running_experiments(root: Path) -> dict[str, str]:
    """The names of running experiments, by the name of the copy in which each of them runs."""
    names = {}
    for path in (root / paths.COPIES / "run").glob("*/*.run"):
        with contextlib.suppress(OSError, UserError):
            info = read_record(path, _ExperimentInfo, way_out="wait for the run")
            names[Path(info.root_dir).name] = info.name
    return names
