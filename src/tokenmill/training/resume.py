"""Where a training goes on: from its own checkpoints, else from the previous output, else from scratch.

DVC removes `models/gpt` before the stage runs, but dvc.lock still names it, and the cache or the remote still has it;
on another machine that is all there is.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from tokenmill.core.files import write_atomic, write_directory
from tokenmill.model.manifest import MANIFEST
from tokenmill.training.checkpoint import RESUME, Checkpoint, CheckpointStore
from tokenmill.training.params import ScheduleParams, TrainParams
from tokenmill.training.schedule import first_difference

if TYPE_CHECKING:
    from dvc.api import DVCFileSystem


Say = Callable[[str], None]


@dataclass(frozen=True)
class ResumePoint:
    """Where to begin, and what to tell about it."""

    checkpoint: Checkpoint | None
    sentence: str

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return self.checkpoint.step if self.checkpoint else 0


def find_resume_point(store: CheckpointStore, train: TrainParams, *, steps_per_epoch: int, say: Say) -> ResumePoint:
    """The newest checkpoint from which `train` goes on exactly; else the newest of a run over fewer epochs; else none.

    A checkpoint is exact when the learning rate of every step that led to it is the same under the parameters of then
    and now. Where the schedule stretches over all epochs, more epochs change it from early on: then the run goes on
    with the new schedule from the newest checkpoint, which is not what a run in one go would have given, as is said.
    Fewer epochs or another horizon alone ask for another run: that one begins before them.
    """
    total = train.epochs * steps_per_epoch
    newest: Checkpoint | None = None
    for checkpoint in store.checkpoints(say):
        if checkpoint.step > total:
            continue
        if is_exact(checkpoint, train, steps_per_epoch=steps_per_epoch):
            return ResumePoint(checkpoint, _exact(checkpoint, newest, total=total, steps_per_epoch=steps_per_epoch))
        if params_at_checkpoint(train, checkpoint).epochs < train.epochs:
            newest = newest or checkpoint
    if newest is None:
        return ResumePoint(None, "starting from scratch")
    return ResumePoint(
        newest,
        f"going on from step {newest.step:,} of {total:,} with the learning rates of a {train.schedule.type} schedule "
        f"over {train.schedule.horizon_epochs or train.epochs} epochs; the steps before followed one over "
        f"{params_at_checkpoint(train, newest).epochs}, so the result differs from a run in one go. For an exact "
        "continuation use train.schedule.type constant or wsd, or fix train.schedule.horizon_epochs",
    )


def is_exact(checkpoint: Checkpoint, train: TrainParams, *, steps_per_epoch: int) -> bool:
    """Whether a run with `train` from scratch comes to this very checkpoint."""
    then, step = params_at_checkpoint(train, checkpoint), checkpoint.step
    return first_difference(then, train, steps_per_epoch=steps_per_epoch, before=step) == step


def params_at_checkpoint(train: TrainParams, checkpoint: Checkpoint) -> TrainParams:
    """Today's parameters with the number of epochs and the horizon that the checkpoint was trained for."""
    then = checkpoint.horizon
    schedule = ScheduleParams(**(train.schedule.model_dump() | then["schedule"]))
    return train.model_copy(update={"epochs": then["epochs"], "schedule": schedule})


def _exact(checkpoint: Checkpoint, newer: Checkpoint | None, *, total: int, steps_per_epoch: int) -> str:
    done, left = checkpoint.step / steps_per_epoch, (total - checkpoint.step) / steps_per_epoch
    why = f" (where the decay of {newer.step / steps_per_epoch:.2g} epochs had not begun)" if newer else ""
    return f"going on from step {checkpoint.step:,} of {total:,}{why}: {done:.3g} epochs done, {left:.3g} to go"


def fill_from_previous(store: CheckpointStore, output: Path, fingerprint: str, say: Say) -> None:
    """Copy the checkpoints of the output that dvc.lock records into an empty `store`, if it is the same training.

    Does nothing without dvc.lock, without a previous output, or where cache and remote no longer have it.
    """
    if not Path("dvc.lock").exists():
        return
    from dvc.api import DVCFileSystem  # noqa: PLC0415 (a third of a second, which a first training need not wait for)

    try:
        repository = DVCFileSystem(".")
        if not repository.exists(str(output / MANIFEST)):
            return
        manifest = json.loads(repository.read_bytes(str(output / MANIFEST)))
        if manifest.get("fingerprint") != fingerprint:
            return
        say(f"fetching the checkpoints of the previous {output} from the DVC cache or remote")
        # Epochs first: a checkpoint is not used without them.
        epochs = [path for path in repository.ls(str(output), detail=False) if Path(path).name.startswith("epoch-")]
        for source in epochs:
            _fetch(repository, source, store.epochs / Path(source).name)
        for source in sorted(repository.ls(str(output / RESUME), detail=False)):
            _fetch(repository, source, store.folder / Path(source).name)
    except Exception as error:  # a remote may fail in its own client's ways, and none of them may stop a training
        say(f"the previous {output} cannot be read ({error}); starting without it")


def _fetch(repository: "DVCFileSystem", source: str, target: Path) -> None:
    """Copy a folder of the previous output, whole or not at all."""
    with write_directory(target) as folder:
        for path in repository.find(source):
            with (
                cast("IO[bytes]", repository.open(path, "rb")) as read,
                write_atomic(folder / Path(path).name) as write,
            ):
                shutil.copyfileobj(read, write, 1 << 20)
