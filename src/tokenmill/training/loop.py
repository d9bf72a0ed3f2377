"""The training loop: optimizer steps, and between them rows, validations and checkpoints.

Everything that a step needs follows from its number, so the loop holds no state but `RunState`.
Continuing from a checkpoint gives the same bytes as a run in one go (on a CPU). Losses are read
only when a row is due, so that the device never waits, and the state counts only steps whose losses
were read and are finite. Training ends before the first update with another loss or gradient.
"""

import functools
import gc
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from tokenmill.core.paths import main_root
from tokenmill.costs import Timing
from tokenmill.model.device import Compute
from tokenmill.model.gpt import GPT
from tokenmill.model.sequences import bits_per_byte, mean_loss, perplexity
from tokenmill.progress import TrainingDisplay
from tokenmill.training.agreement import check_gradients
from tokenmill.training.checkpoints.background import AsyncCheckpointer
from tokenmill.training.checkpoints.store import CheckpointStore
from tokenmill.training.compile import Compilation, RecordedStep
from tokenmill.training.distributed import FlagSync, Group, whole_model
from tokenmill.training.history import EpochRow, RunState, StepRow, ValidationRow
from tokenmill.training.job import Data
from tokenmill.training.launch import Interrupt
from tokenmill.training.live import LiveFiles
from tokenmill.training.optimizer import Optimizer, momentum_at
from tokenmill.training.params import RuntimeParams
from tokenmill.training.schedule import Workload
from tokenmill.training.step import Batch, MicroBatch, StepResult, batch_at, train_step
from tokenmill.words.units import counted

SEQUENCES_IN_MESSAGE = 8
"""A message about a diverged step names at most this many of its sequences."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How and on what a run computes, decided by its parameters, the device and the processes."""

    runtime: RuntimeParams
    group: Group
    compute: Compute
    compilation: Compilation
    data: Data


@dataclass(frozen=True, kw_only=True)
class Training(Setup):
    """Everything that a training has opened, and its state."""

    work: Workload
    model: GPT
    """The model that holds the weights."""
    forward: GPT
    """The model to call. Its backward pass averages gradients over all processes, and it is
    compiled if the run is."""
    optimizer: Optimizer
    micro_batch: MicroBatch
    state: RunState
    store: CheckpointStore
    saver: AsyncCheckpointer
    display: TrainingDisplay
    live: LiveFiles
    timing: Timing
    """The table of the run's times, whose clock starts where training does."""
    unread: list[tuple[StepResult, Batch]] = field(default_factory=list)
    """The steps that `state` does not count yet; their results are still on the device."""


def train(run: Training, interrupt: Interrupt) -> None:
    """Train from where `run.state` is to the last step.

    Raises:
        UserError: training was stopped from outside, and everything is saved; or the loss is no
            longer finite, and the last good checkpoint stays.
    """
    work = run.work
    state = run.state
    first, end = state.step, ends_early(run) or work.steps
    every_steps = run.runtime.checkpoint.every_steps
    step_on = step_function(run)
    flags = FlagSync(run.group)
    run.model.train()
    with interrupt, run.saver.active():
        if first < end:
            check_compiled(run)
        for step in range(first, end):
            batch = batch_at(work, step)
            run.optimizer.set_rates(
                work.learning_rate_at(step),
                momentum=momentum_at(step),
                average=work.average_weight_at(step),
            )
            run.unread.append((step_on(batch), batch))
            done = step + 1
            if step == first:
                settle(run.compute.device)
                run.display.began(done)
                run.live.began(done, seconds=run.timing.seconds)
            ends_epoch = done % work.steps_per_epoch == 0
            if ends_epoch or done % work.train.log_every_steps == 0:
                log(run)
            with run.timing.excluded():
                reason = interrupt.reason
                stop, save = flags.all_reduce(stop=bool(reason), save=run.saver.is_late(done))
                ended = validate_if_due(run, done)
                kept = ended or done == work.pre_decay_step
                saves = stop or save or ends_epoch or kept or divides(every_steps, done)
                if saves:
                    save_checkpoint(run)
            if saves:
                run.timing.interval(step=state.step, tokens=state.tokens)
            if stop:
                end_stopped(run, reason)
            if ended:
                break
        if state.step % work.steps_per_epoch:
            end_part_of_epoch(run)
        say_missed_target(run)
    flags.wait()


def check_compiled(run: Training) -> None:
    """Refuse a compiled model that has not the gradients of the model itself.

    Dropout draws otherwise in compiled code, and a sharded model is not there as a whole: neither
    is checked.
    """
    if not run.compilation.on or run.group.shards or run.work.config.dropout:
        return
    check_gradients(
        run.model,
        run.forward,
        run.data.train,
        batch_at(run.work, run.state.step).index,
        micro_batch=run.micro_batch,
        compute=run.compute,
    )


def step_function(run: Training) -> Callable[[Batch], StepResult]:
    """The function that makes a step of this run: `train_step`, or the replay of a recorded
    step."""
    step_on = functools.partial(
        train_step,
        run.forward,
        run.optimizer,
        run.data.train,
        micro_batch=run.micro_batch,
        compute=run.compute,
    )
    if not run.compilation.recorded:
        return step_on
    return RecordedStep(
        step_on,
        sequences=run.work.largest_step,
        device=run.compute.device,
        before=run.optimizer.wait,
        before_recording=run.saver.wait,
    )


def settle(device: torch.device) -> None:
    """Tell Python's collector of garbage, after the first step, that what there is stays to the
    end.

    A look at everything stops the host of a GPU for long enough that the GPU waits.
    """
    if device.type == "cuda":
        gc.collect()
        gc.freeze()


def divides(every: int | None, step: int) -> bool:
    """Whether something that is done every `every` steps is due after `step`; with None it never
    is."""
    return every is not None and step % every == 0


def read_losses(run: Training) -> None:
    """Count the unread steps in the state, with their losses. The first one whose loss or gradient
    norm is not finite ends the run."""
    if not run.unread:
        return
    state, optimizer = run.state, run.optimizer
    results, batches = zip(*run.unread, strict=True)
    run.unread.clear()
    losses = torch.stack([result.loss for result in results]).tolist()
    norms = torch.stack([result.gradient_norm for result in results]).tolist()
    for batch, loss, norm in zip(batches, losses, norms, strict=True):
        if not math.isfinite(loss) or not (math.isfinite(norm) or optimizer.skips_overflow):
            end_diverged(run, state.step, loss=loss, norm=norm)
        state.step += 1
        state.tokens += len(batch.index) * run.work.config.context_length
        weight = run.data.train.weight(batch.index)
        state.epoch_loss.add(loss, weight)
        state.interval_loss.add(loss, weight)
        state.gradient_norm = norm
    if not math.isfinite(norms[-1]) and optimizer.is_hopeless:
        end_diverged(run, state.step - 1, loss=losses[-1], norm=norms[-1])


def log(run: Training) -> None:
    """Close an interval: read the losses, add a row, show it."""
    state, work = run.state, run.work
    read_losses(run)
    row = StepRow(
        step=state.step,
        epoch=state.step / work.steps_per_epoch,
        loss=state.interval_loss.take(),
        learning_rate=work.learning_rate_at(state.step - 1),
        gradient_norm=state.gradient_norm,
    )
    state.steps.append(row)
    rate = run.timing.interval(step=state.step, tokens=state.tokens)
    run.live.add(row)
    run.display.interval(
        step=row.step,
        epoch=row.epoch,
        loss=row.loss,
        tokens_per_second=rate,
        spent=run.timing.total,
    )


def validate(run: Training) -> tuple[float, float]:
    """The loss of the weights that are kept on the measured validation text, in nats per token and
    in bits per byte.

    Raises:
        UserError: it is not finite, because the last update broke the weights.
    """
    data, group = run.data, run.group
    everything = np.arange(data.val.count)
    index = group.part_of(everything)
    loss = 0.0
    if len(index):
        with run.optimizer.averaged():
            loss = mean_loss(
                run.forward,
                data.val,
                index,
                micro_batch=run.micro_batch.sequences,
                compute=run.compute,
                shrink=group.size == 1,
            )
    loss = group.average(loss, weight=data.val.weight(index))
    if not math.isfinite(loss):
        end_broken(run, loss)
    targets = data.val.weight(everything)
    return loss, bits_per_byte(loss, tokens=targets, text_bytes=data.val_bytes)


def validate_if_due(run: Training, step: int) -> bool:
    """Validate and add a row where a validation is due after `step`. Return whether it ends the
    run."""
    epochs, within = divmod(step, run.work.steps_per_epoch)
    if within and not is_validated_at(run, step):
        return False
    read_losses(run)
    loss, bits = validate(run)
    if within:
        row = ValidationRow(step, step / run.work.steps_per_epoch, loss, bits)
        run.state.validations.append(row)
        run.display.say(f"  step {step:,}, epoch {row.epoch:.2f}: validation loss {loss:.3f}")
    else:
        row = ValidationRow(step, epochs, loss, bits)
        add_epoch(run, loss, bits)
    run.live.add(row)
    return ends_early(run) == step


def is_validated_at(run: Training, step: int) -> bool:
    """Whether a validation within an epoch is due after `step`: each time
    `train.validate_every_steps` are done, else where the loss may be at `train.target_loss`."""
    train = run.work.train
    if train.expected_target is not None:
        return step >= run.state.expected_at(train.expected_target)
    return divides(train.validate_every_steps, step)


def end_part_of_epoch(run: Training) -> None:
    """End the last interval and the last epoch where a validation within them ended the run.

    The checkpoint of this step is from before, so a run with another `train.target_loss` continues
    both.
    """
    if run.state.step % run.work.train.log_every_steps:
        log(run)
    last = run.state.validations[-1]
    add_epoch(run, last.val_loss, last.val_bits_per_byte)


def add_epoch(run: Training, loss: float, bits: float) -> None:
    """Keep the weights and add a row, with a validation loss in nats per token and in bits per
    byte."""
    state, work = run.state, run.work
    row = EpochRow(
        epoch=len(state.epochs) + 1,
        step=state.step,
        tokens=state.tokens,
        learning_rate=work.learning_rate_at(state.step - 1),
        train_loss=state.epoch_loss.take(),
        val_loss=loss,
        val_perplexity=perplexity(loss),
        val_bits_per_byte=bits,
    )
    with run.optimizer.averaged():
        model = whole_model(run.model)
        if run.group.is_main:
            state.add_epoch(run.store.save_epoch(row.epoch, model))
    state.epochs.append(row)
    run.display.epoch(row.epoch, train_loss=row.train_loss, val_loss=loss, bits_per_byte=bits)


def ends_early(run: Training) -> int | None:
    """The step at which `train.target_loss` or `train.early_stopping` ends this run, after a
    message about it; None if the run goes on."""
    train, state = run.work.train, run.state
    stop = state.ends_at(train)
    if stop and stop == state.reached_at(train.target_loss):
        run.display.say(
            f"training ends after step {stop:,} of {run.work.steps:,}: the validation loss is at "
            f"most {train.target_loss:g} (train.target_loss)"
        )
    elif stop and train.early_stopping:
        best = min(state.epochs, key=lambda row: row.val_loss)
        lowest = min(state.validated(), key=lambda row: row.val_loss)
        within = f"; at epoch {lowest.epoch:.2f} it was {lowest.val_loss:.3f}"
        run.display.say(
            f"training ends early, after {counted(len(state.epochs), 'epoch')}: "
            f"{counted(train.early_stopping, 'validation')} without a lower loss "
            f"(train.early_stopping); of the epochs, epoch {best.epoch} has the lowest, "
            f"{best.val_loss:.3f}{within if lowest.val_loss < best.val_loss else ''}"
        )
    return stop


def say_missed_target(run: Training) -> None:
    """Say of a run that no loss has ended that it did not come to its `train.target_loss`."""
    state, target = run.state, run.work.train.target_loss
    if target is None or state.ends_at(run.work.train) is not None:
        return
    lowest = min(row.val_loss for row in state.validated())
    run.display.say(
        f"training ends after step {state.step:,} of {run.work.steps:,} without its target: the "
        f"lowest validation loss is {lowest:.3f}, above {target:g} (train.target_loss); a larger "
        "train.epochs goes on"
    )


def save_checkpoint(run: Training) -> None:
    """Begin to write a checkpoint, after all losses up to here were read and are finite.

    Weights that the last update broke are not saved. The next loss ends the run.
    """
    check_tokens(run)
    read_losses(run)
    with run.saver.timed():
        model = whole_model(run.model)
        optimizer = run.optimizer.state()
        if run.group.is_main and is_finite(model):
            copied = run.saver.save(run.state, model, optimizer, owned=run.group.shards)
            run.optimizer.update_after(copied)


def check_tokens(run: Training) -> None:
    """End the run, without the steps since the last checkpoint, if the file that its tokens are
    read from has changed, on any machine. Each process answers, also one with them in memory."""
    file = run.data.mapped
    changed = file is not None and not file.holds
    if not run.group.all_reduce_min(not changed):
        run.saver.wait()
        which = file.path if file and changed else "the file of another process's tokens"
        run.group.end(
            f"{which} changed while it was read; the steps since the last checkpoint are not "
            "saved. `dvc repro` unpacks the tokens again and continues from there."
        )


def is_finite(model: GPT) -> bool:
    """Whether all weights are finite. Their maximum norm tells it without a copy."""
    return all(
        torch.linalg.vector_norm(value, torch.inf).isfinite().item() for value in model.parameters()
    )


def end_stopped(run: Training, reason: str | None) -> NoReturn:
    """End a run that was stopped from outside, once its checkpoint is written."""
    run.saver.wait()
    run.timing.interval(step=run.state.step, tokens=run.state.tokens)
    command = "`dvc repro`" if main_root() == Path() else "the same `dvc exp run`"
    run.group.end(
        f"{reason or 'another process was stopped'} after step {run.state.step:,} of "
        f"{run.work.steps:,}; everything up to there is saved, and {command} continues from it."
    )


def end_broken(run: Training, loss: float) -> NoReturn:
    """End a run whose weights the last update broke. They are not saved."""
    run.saver.wait()
    step, lower = run.state.step, to_lower(run.work, run.compute.precision)
    run.live.diverged(f"after step {step:,}; lower {lower}")
    run.group.end(
        f"training diverged: after step {step:,} the validation loss is {loss}. Lower {lower}."
    )


def end_diverged(run: Training, step: int, *, loss: float, norm: float) -> NoReturn:
    """End a run whose loss or gradient norm is not finite in `step`, counted from 0, of which no
    update was made. What was before it is saved."""
    run.saver.wait()
    group, store, done = run.group, run.store, run.state.step
    is_new = 0 < done == step and not store.checkpoint_folder(done).exists()
    if group.broadcast(is_new):
        save_checkpoint(run)
        run.saver.wait()
    good = store.newest_upto(step)
    saved = f"the last good checkpoint is {good}" if good else "there was no checkpoint yet"
    work, per_epoch = run.work, run.work.steps_per_epoch
    lower = to_lower(work, run.compute.precision)
    epoch, position = divmod(step, per_epoch)
    first = ", ".join(map(str, work.sequences_at(step)[:SEQUENCES_IN_MESSAGE]))
    sequences = f"sequences {'' if work.whole_texts else 'from the tokens '}{first}, …"
    run.live.diverged(f"in step {step + 1:,}; lower {lower}")
    group.end(
        f"training diverged in step {step + 1:,}, epoch {epoch + 1}, batch {position + 1:,} of "
        f"{per_epoch:,} ({sequences}): loss {loss}, gradient norm {norm}, learning rate "
        f"{work.learning_rate_at(step):.3g}. Its update was not made; {saved}. Lower {lower}."
    )


def to_lower(work: Workload, precision: torch.dtype) -> str:
    """The parameter to lower where training diverged in this precision, and what else helps."""
    train = work.train
    if work.whole_texts:
        return f"finetune.learning_rate ({train.peak})"
    rate = f"train.learning_rate ({train.peak})"
    warmup = f"raise train.schedule.warmup_steps ({train.schedule.warmup_steps})"
    if precision == torch.float32:
        return f"{rate}, or {warmup}"
    return f"{rate}, {warmup}, or take another train.precision ({train.precision})"
