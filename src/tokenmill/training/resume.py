"""Where a training goes on: from its own checkpoints, else from the previous output, else from scratch.

DVC removes `models/gpt` before the stage runs, but dvc.lock still names it, and the cache or the remote still has it;
on another machine that is all there is.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from dvc.api import DVCFileSystem
from dvc.exceptions import DvcException

from tokenmill.files import write_atomic
from tokenmill.training.manifest import MANIFEST
from tokenmill.training.params import ScheduleParams, TrainParams
from tokenmill.training.release import RESUME
from tokenmill.training.schedule import first_difference
from tokenmill.training.store import Checkpoint, Store

Say = Callable[[str], None]


@dataclass(frozen=True)
class Beginning:
    """Where to begin, and what to tell about it."""

    checkpoint: Checkpoint | None
    sentence: str


def choose(store: Store, train: TrainParams, *, steps_per_epoch: int, say: Say) -> Beginning:
    """The newest checkpoint from which `train` goes on exactly; else the newest at all; else none.

    A checkpoint is exact when the learning rate of every step before it is the same under the parameters of then and
    now. Where the schedule stretches over all epochs, more epochs change it from early on: then the run goes on with
    the new schedule from the newest checkpoint, which is not what a run in one go would have given, and this is said.
    """
    total = train.epochs * steps_per_epoch
    newest: Checkpoint | None = None
    for checkpoint in store.checkpoints(say):
        if checkpoint.step > total:
            continue
        then = _as_trained(train, checkpoint)
        if first_difference(then, train, steps_per_epoch=steps_per_epoch, before=checkpoint.step) == checkpoint.step:
            return Beginning(checkpoint, _exact(checkpoint, newest, total=total, steps_per_epoch=steps_per_epoch))
        newest = newest or checkpoint
    if newest is None:
        return Beginning(None, "starting from scratch")
    return Beginning(
        newest,
        f"going on from step {newest.step:,} of {total:,} with the learning rates of a {train.schedule.type} schedule "
        f"over {train.schedule.horizon_epochs or train.epochs} epochs; the steps before followed one over "
        f"{_as_trained(train, newest).epochs}, so the result differs from a run in one go. For an exact continuation "
        "use train.schedule.type constant or wsd, or fix train.schedule.horizon_epochs",
    )


def _as_trained(train: TrainParams, checkpoint: Checkpoint) -> TrainParams:
    """Today's parameters with the number of epochs and the horizon that the checkpoint was trained for."""
    then = checkpoint.horizon
    schedule = ScheduleParams(**(train.schedule.model_dump() | then["schedule"]))
    return train.model_copy(update={"epochs": then["epochs"], "schedule": schedule})


def _exact(checkpoint: Checkpoint, newer: Checkpoint | None, *, total: int, steps_per_epoch: int) -> str:
    done, left = checkpoint.step / steps_per_epoch, (total - checkpoint.step) / steps_per_epoch
    why = f" (where the decay of {newer.step / steps_per_epoch:.2g} epochs had not begun)" if newer else ""
    return f"going on from step {checkpoint.step:,} of {total:,}{why}: {done:.3g} epochs are done, {left:.3g} are left"


def fill_from_previous(store: Store, output: Path, fingerprint: str, say: Say) -> None:
    """Copy the checkpoints of the output that dvc.lock records into an empty `store`, if it is the same training.

    Does nothing outside a DVC repository, without a previous output, or where cache and remote no longer have it.
    """
    try:
        repository = DVCFileSystem(".")
        if not repository.exists(str(output / MANIFEST)):
            return
        manifest = json.loads(repository.read_bytes(str(output / MANIFEST)))
        if manifest.get("fingerprint") != fingerprint:
            return
        say(f"fetching the checkpoints of the previous {output} from the DVC cache or remote")
        for source in repository.find(str(output)):
            _fetch(repository, source, store, Path(source).relative_to(output))
    except (DvcException, OSError, ValueError) as error:
        say(f"the previous {output} cannot be read ({error}); starting without it")


def _fetch(repository: DVCFileSystem, source: str, store: Store, relative: Path) -> None:
    """Copy one file of the previous output to where `store` keeps it."""
    if relative == Path(MANIFEST):
        return
    resumable = relative.parts[0] == RESUME
    target = store.folder / relative.relative_to(RESUME) if resumable else store.epochs / relative
    with cast("IO[bytes]", repository.open(source, "rb")) as read, write_atomic(target) as write:
        shutil.copyfileobj(read, write, 1 << 20)
