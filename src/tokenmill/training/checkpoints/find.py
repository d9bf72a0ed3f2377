"""Find where training continues: from the run's own checkpoints, else from the previous output,
else from its start.

DVC removes `models/gpt` before the stage runs. But dvc.lock still names it, and the cache or the
remote still holds it; on another machine there is nothing else.
"""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from tokenmill.core.files import write_atomic, write_directory
from tokenmill.core.paths import STEP_NAME
from tokenmill.formats.records import parse_record
from tokenmill.model.manifest import MANIFEST, Manifest
from tokenmill.training.checkpoints.store import RESUME, Checkpoint, CheckpointStore
from tokenmill.training.history import RunState
from tokenmill.training.params import TrainParams
from tokenmill.training.schedule import Workload, same_rates
from tokenmill.words.units import counted

if TYPE_CHECKING:
    from dvc.api import DVCFileSystem

Say = Callable[[str], None]


def find_checkpoint(store: CheckpointStore, work: Workload, *, say: Say) -> Checkpoint | None:
    """Find the newest exact checkpoint; else the newest one of a run over fewer epochs, or of one
    that continued from such a checkpoint; else none. Say where training continues.

    A checkpoint is exact if every step that led to it has the same learning rate under today's
    parameters. With a schedule over all epochs (cosine), more epochs change the rates from early
    on. Then the run continues from the newest checkpoint with the new rates, and a sentence says
    that the result differs from a run in one go. So do those of all later runs.

    Fewer epochs, or only another horizon, are another run, which starts before all such
    checkpoints. With early stopping or a target loss, a checkpoint after the end of training is not
    used, nor is one of a run whose validations may have missed the end.
    """
    train = work.train
    exact, newest = _candidates(store.checkpoints(say), work)
    if exact:
        say(_exact_sentence(exact, newest, work))
    if exact or newest is None:
        return exact
    before, now = params_at_checkpoint(train, newest).horizon, train.horizon
    differs = "earlier steps followed another one"
    if before != now:
        differs = f"the steps before followed one over {before:,}"
    kinds = "constant or power" if train.schedule.type == "wsd" else "constant, power or wsd"
    say(
        f"continuing from step {newest.step:,} of {work.steps:,} with the learning rates of a "
        f"{train.schedule.type} schedule over {now:,} epochs; {differs}, so the result differs "
        f"from a run in one go. For an exact continuation use train.schedule.type {kinds}, or fix "
        "train.schedule.horizon_epochs"
    )
    return newest


def best_checkpoint(checkpoints: Iterable[Checkpoint], work: Workload) -> Checkpoint | None:
    """The checkpoint, of some that come newest first, from which `find_checkpoint` continues."""
    exact, newest = _candidates(checkpoints, work)
    return exact or newest


def _candidates(
    checkpoints: Iterable[Checkpoint], work: Workload
) -> tuple[Checkpoint | None, Checkpoint | None]:
    """The newest exact checkpoint, and the newest one after it from which a run continues if none
    is exact."""
    train = work.train
    newest: Checkpoint | None = None
    for checkpoint in checkpoints:
        then = params_at_checkpoint(train, checkpoint)
        end = min(work.steps, checkpoint.state.ends_at(train) or work.steps)
        if checkpoint.step > end or _may_have_missed_the_end(checkpoint.state, then, work):
            continue
        agrees = same_rates(replace(work, train=then), work, steps=checkpoint.step)
        # Exact: a run from scratch with today's parameters reaches this same checkpoint.
        if agrees and _has_rates_of(checkpoint.state, work):
            return checkpoint, newest
        if agrees or then.epochs < train.epochs:
            newest = newest or checkpoint
    return None, newest


def _has_rates_of(state: RunState, work: Workload) -> bool:
    """Whether all rows so far have the learning rates of today's parameters; those before a
    continuation that was not exact have others."""
    # The cosine of another machine may round otherwise
    tolerance = 1e-9 * work.train.peak
    return all(
        abs(row.learning_rate - work.learning_rate_at(row.step - 1)) <= tolerance
        for row in (*state.steps, *state.epochs)
    )


def _may_have_missed_the_end(state: RunState, then: TrainParams, work: Workload) -> bool:
    """Whether a checkpoint's `state` has other validations than today's parameters would have made,
    and so perhaps another end; `then` are those with which it was trained.

    Before a target that is not as low, a run cannot have been at today's.
    """
    now = work.train
    if now.early_stopping is None and now.target_loss is None:
        return False
    before, after = then.expected_target, now.expected_target
    if after is None:
        every = now.validate_every_steps or state.step + 1
        due = range(every, state.step + 1, every)
        within = [step for step in due if step % work.steps_per_epoch]
        return [row.step for row in state.validations] != within
    if before == after:
        return False
    is_lower = before is not None and after < before
    return now.early_stopping is not None or not is_lower


def params_at_checkpoint(train: TrainParams, checkpoint: Checkpoint) -> TrainParams:
    """Today's parameters, with those of `Resumable` with which the checkpoint was trained."""
    then = vars(checkpoint.resumable)
    schedule = train.schedule.model_copy(update=vars(then["schedule"]))
    return train.model_copy(update=then | {"schedule": schedule})


def _exact_sentence(checkpoint: Checkpoint, newer: Checkpoint | None, work: Workload) -> str:
    done = checkpoint.step / work.steps_per_epoch
    to_go = work.train.epochs - done
    why = ""
    if newer:
        then = params_at_checkpoint(work.train, newer)
        why = f" (where the decay of {counted(then.horizon, 'epoch')} had not begun)"
    epochs = "epoch" if done == 1 else "epochs"
    return (
        f"continuing from step {checkpoint.step:,} of {work.steps:,}{why}: "
        f"{round(done, 2):,g} {epochs} done, {round(to_go, 2):,g} to go"
    )


def fill_from_previous(store: CheckpointStore, output: Path, say: Say) -> None:
    """Copy the checkpoints of the output that dvc.lock records into an empty `store`, if they are
    of its configuration.

    Does nothing without dvc.lock, without a previous output, or if neither cache nor remote has it
    any more.
    """
    if not Path("dvc.lock").exists():
        return
    try:
        # Importing this takes a third of a second, and a first run does not need it
        from dvc.api import DVCFileSystem  # noqa: PLC0415

        repository = DVCFileSystem(".")
        if not repository.exists(str(output / MANIFEST)):
            return
        content = cast("bytes", repository.read_bytes(str(output / MANIFEST)))
        manifest = parse_record(
            content, Manifest, source=output / MANIFEST, way_out="it is not used"
        )
        if manifest.fingerprint != store.folder.name:
            return
        say(f"fetching the checkpoints of the previous {output} from the DVC cache or remote")
        # Epochs first: a checkpoint is not used without them.
        for epoch, sha256 in enumerate(manifest.weights, start=1):
            _fetch(repository, str(output / f"epoch-{epoch}"), store.epoch_folder(epoch, sha256))
        for source in sorted(repository.ls(str(output / RESUME), detail=False)):
            if STEP_NAME.fullmatch(Path(source).name):
                _fetch(repository, source, store.folder / Path(source).name)
    # Every remote fails in its own way, and none of them may stop training
    except Exception as error:
        say(f"the previous {output} cannot be read ({error}); starting without it")


def _fetch(repository: "DVCFileSystem", source: str, target: Path) -> None:
    """Copy a folder of the previous output, whole or not at all."""
    with write_directory(target) as folder:
        for path in repository.find(source):
            with (
                cast("IO[bytes]", repository.open(path, "rb")) as read,
                write_atomic(folder / Path(path).relative_to(source)) as write,
            ):
                shutil.copyfileobj(read, write, 1 << 20)
