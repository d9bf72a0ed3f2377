"""The training loop: optimizer steps, and between them rows, validations and checkpoints.

Everything a step needs follows from its number, so the loop holds no state but `RunState`.
Continuing from a checkpoint gives the same bytes as a run in one go (on a CPU). Losses are read
only when a row is due, so that the device never waits; training still ends before the first update
with a loss or gradient that is not finite.
"""

import math
import time
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import torch

from tokenmill.costs import Timing
from tokenmill.display import TrainingDisplay
from tokenmill.model.device import Compute
from tokenmill.model.gpt import GPT
from tokenmill.model.sequences import (
    Index,
    Sequences,
    bits_per_byte,
    evenly_spread,
    mean_loss,
    perplexity,
)
from tokenmill.training.async_checkpoint import AsyncCheckpointer
from tokenmill.training.checkpoint import RESUMABLE_KEYS, CheckpointStore
from tokenmill.training.compile import Compilation, RecordedStep
from tokenmill.training.distributed import FlagSync, Group, whole_model
from tokenmill.training.history import EpochRow, LiveFiles, RunState, StepRow, ValidationRow
from tokenmill.training.launch import Interrupt
from tokenmill.training.lora import merge
from tokenmill.training.memory import MicroBatch
from tokenmill.training.mirror import Mirror
from tokenmill.training.optimizer import Optimizer, momentum_at
from tokenmill.training.params import RuntimeParams
from tokenmill.training.resume import ResumePoint
from tokenmill.training.schedule import Workload
from tokenmill.training.step import StepResult, seed_dropout, train_step

SEQUENCES_IN_MESSAGE = 8
"""The message about a diverged step names this many of its sequences."""


@dataclass(frozen=True)
class Data:
    """What a run learns from and validates with, opened for a device."""

    train: Sequences
    val: Sequences
    val_tokens: int
    """What bits per byte are computed from: tokens of the validation text,"""
    val_bytes: int
    """and its bytes."""
    place: str
    """Where the tokens are."""


@dataclass(frozen=True)
class TrainingSetup:
    """What is trained, on what, and how."""

    work: Workload
    runtime: RuntimeParams
    compute: Compute
    compilation: Compilation
    data: Data
    group: Group


@dataclass
class Diverged(Exception):  # noqa: N818 (a state of the training, not yet an error)
    """A loss or gradient norm is not finite; the update of this step was not made."""

    step: int
    """Counts from 0."""
    loss: float
    norm: float


class Trainer:
    """Trains one model from a resume point to the end, or to the first reason to stop."""

    def __init__(
        self,
        setup: TrainingSetup,
        model: GPT,
        store: CheckpointStore,
        resume_point: ResumePoint,
        *,
        micro_batch: MicroBatch,
        display: TrainingDisplay,
        live: LiveFiles,
        mirror: Mirror | None,
    ):
        """Load the resume point into `model`, which is on the setup's device, or on the host if it
        is to be sharded."""
        self.setup, self.model, self.store, self.micro_batch = setup, model, store, micro_batch
        self.display, self.live = display, live
        checkpointing = setup.runtime.checkpoint
        self.saver = AsyncCheckpointer(
            store,
            keep=checkpointing.keep,
            keep_steps=setup.work.kept_steps,
            mirror=mirror.offer if mirror else None,
        )
        checkpoint = resume_point.checkpoint
        optimizer_state = checkpoint.load(model) if checkpoint else {}
        self.state = setup.group.broadcast(checkpoint.state if checkpoint else RunState())
        wrapped = setup.group.wrap(
            model, setup.compute, whole_gradients=micro_batch.holds_whole_gradients()
        )
        self.forward: GPT = setup.compilation.of(wrapped)  # type: ignore[assignment]
        """The model to call, which averages gradients over all processes."""
        self.optimizer = Optimizer(
            model,
            setup.work.train,
            setup.compute,
            group=setup.group,
            compiler=setup.compilation.for_update(setup.compute.device),
            repeats=setup.compilation.recorded,
        )
        if shared := setup.group.broadcast_tensors(optimizer_state):
            self.optimizer.load(shared)
        self._recorded = self._recording() if setup.compilation.recorded else None
        self._pending: list[tuple[StepResult, np.ndarray]] = []
        self._saved_at = time.monotonic()
        self._find_last_step()

    def run(self, interrupt: Interrupt) -> None:
        """Train to the end.

        Raises:
            UserError: training was stopped from outside, and everything is saved; or the loss is no
                longer finite, and the last good checkpoint stays.
        """
        folder = self.store.folder if self.setup.group.is_main else None
        timing = Timing(
            folder, step=self.state.step, tokens=self.state.tokens, prices=self.setup.runtime.cost
        )
        flags = FlagSync(self.setup.group)
        self.model.train()
        with interrupt, self.saver.active():
            try:
                while self.state.step < self._last_step:
                    self._step()
                    self._log_if_due(timing)
                    with timing.excluded():
                        self._between_steps(interrupt.reason, flags)
            except Diverged as diverged:
                flags.wait()
                self.saver.wait()
                self._end(diverged)
        flags.wait()

    def _between_steps(self, reason: str | None, flags: FlagSync) -> None:
        """Do what is due: an epoch's end, a checkpoint, the end of this session for a `reason`."""
        state, work = self.state, self.setup.work
        stop, save = flags.all_reduce(stop=reason is not None, save=self._time_is_up())
        if state.step % work.steps_per_epoch == 0:
            self._end_epoch()
        elif work.train.validate_every_steps and state.step % work.train.validate_every_steps == 0:
            self._validate_within_epoch()
        if stop or save or self._checkpoint_due():
            self._save()
        if stop:
            self.saver.wait()
            self.setup.group.end(
                f"{reason or 'another process was stopped'} after step {state.step:,} of "
                f"{work.steps:,}; everything up to there is saved, and `dvc repro` continues from "
                "it."
            )

    def _step(self) -> None:
        """Make one optimizer step; its results are read later, when a row is due."""
        index = self.setup.work.sampler.indices_at(self.state.step)
        while (result := self._try_step(index)) is None:
            self.display.say(self.micro_batch.shrink())
            self._recorded = self._recorded and self._recording()
        merge(self.model)
        self.state.step += 1
        self.state.tokens += len(index) * self.model.config.context_length
        self._pending.append((result, index))

    def _try_step(self, index: np.ndarray) -> StepResult | None:
        """Update the model; None if memory ran out."""
        work, step, group = self.setup.work, self.state.step, self.setup.group
        if self.model.config.dropout:
            seed_dropout(work.train.seed, step, rank=group.rank)
        self.optimizer.set_rates(work.learning_rate_at(step), momentum=momentum_at(step))
        if self._recorded and len(index) == work.sequences_per_step:
            self.optimizer.wait()
            return self._recorded(index)
        return self._update(index)

    def _update(self, index: Index) -> StepResult | None:
        """Update the model at the rates of now."""
        setup = self.setup
        each = -(-setup.work.sequences_per_step // setup.group.size)
        return train_step(
            self.forward,
            self.optimizer,
            setup.data.train,
            index,
            micro_batch=min(self.micro_batch.sequences, each),
            gradient_clip=setup.work.train.gradient_clip,
            compute=setup.compute,
            group=setup.group,
        )

    def _recording(self) -> RecordedStep:
        """Whole steps of the micro-batch of now, to be recorded."""
        return RecordedStep(
            self._update,
            sequences=self.setup.work.sequences_per_step,
            device=self.setup.compute.device,
        )

    def _read_pending(self) -> float:
        """Read the results of the steps since the last reading; return the last gradient norm, or
        NaN without steps.

        Raises:
            Diverged: a step's loss or gradient norm is not finite. The state is that of before this
                step.
        """
        if not self._pending:
            return math.nan
        losses: list[float] = torch.stack([result.loss for result, _ in self._pending]).tolist()
        norms: list[float] = torch.stack(
            [result.gradient_norm for result, _ in self._pending]
        ).tolist()
        for done, (loss, norm) in enumerate(zip(losses, norms, strict=True)):
            if not math.isfinite(loss) or not (
                math.isfinite(norm) or self.optimizer.skips_overflow
            ):
                self._take_back(len(losses) - done)
                raise Diverged(self.state.step, loss, norm)
            weight = self.setup.data.train.weight(self._pending[done][1])
            self.state.epoch_loss.add(loss, weight)
            self.state.interval_loss.add(loss, weight)
        self._pending.clear()
        if not math.isfinite(norms[-1]) and self.optimizer.is_hopeless:
            raise Diverged(self.state.step - 1, losses[-1], norms[-1])
        return norms[-1]

    def _take_back(self, steps: int) -> None:
        """Uncount the last steps, which changed no weight."""
        sequences = sum(len(index) for _, index in self._pending[-steps:])
        self.state.step -= steps
        self.state.tokens -= sequences * self.model.config.context_length
        self._pending.clear()

    def _end(self, diverged: Diverged) -> NoReturn:
        """Save what was before the diverged step, and end the run."""
        group, store, step = self.setup.group, self.store, self.state.step
        is_new = 0 < step == diverged.step and not store.checkpoint_folder(step).exists()
        if group.broadcast(is_new):
            self._save()
            self.saver.wait()
        good = store.newest_upto(diverged.step)
        saved = f"the last good checkpoint is {good}" if good else "there was no checkpoint yet"
        work, train, per_epoch = (
            self.setup.work,
            self.setup.work.train,
            self.setup.work.steps_per_epoch,
        )
        epoch, position = divmod(diverged.step, per_epoch)
        sequences = ", ".join(
            map(str, work.sampler.indices_at(diverged.step)[:SEQUENCES_IN_MESSAGE])
        )
        group.end(
            f"training diverged in step {diverged.step + 1:,}, epoch {epoch + 1}, batch "
            f"{position + 1:,} of {per_epoch:,} (sequences {sequences}, …): loss {diverged.loss}, "
            f"gradient norm {diverged.norm}, learning rate "
            f"{work.learning_rate_at(diverged.step):.3g}. Its update was not made; {saved}. Lower "
            f"train.learning_rate ({train.peak}), raise train.schedule.warmup_steps "
            f"({train.schedule.warmup_steps}), or take another train.precision "
            f"({train.precision})."
        )

    def _log_if_due(self, timing: Timing) -> None:
        """Close an interval: read the losses, add a row, show it."""
        state, work = self.state, self.setup.work
        if state.step % work.train.log_every_steps and state.step % work.steps_per_epoch:
            return
        norm = self._read_pending()
        row = StepRow(
            step=state.step,
            epoch=state.step / work.steps_per_epoch,
            loss=state.interval_loss.take(),
            learning_rate=work.learning_rate_at(state.step - 1),
            gradient_norm=norm,
        )
        state.steps.append(row)
        rate = timing.interval(step=state.step, tokens=state.tokens)
        self.live.add(row)
        self.display.interval(
            step=row.step,
            epoch=row.epoch,
            loss=row.loss,
            tokens_per_second=rate,
            spent=timing.total,
        )

    def _validate(self) -> tuple[float, float]:
        """The loss on the fixed validation sequences, in nats per token, and in bits per byte."""
        setup, data = self.setup, self.setup.data
        index = evenly_spread(data.val.count, setup.work.train.validation_sequences)
        mine = setup.group.part_of(index)
        loss = 0.0
        if len(mine):
            loss = mean_loss(
                self.forward,
                data.val,
                mine,
                micro_batch=self.micro_batch.sequences,
                compute=setup.compute,
                shrink=setup.group.size == 1,
            )
        loss = setup.group.average(loss, weight=data.val.weight(mine))
        return loss, bits_per_byte(loss, tokens=data.val_tokens, text_bytes=data.val_bytes)

    def _validate_within_epoch(self) -> None:
        """Validate and add a row, after all losses up to here were read and are finite."""
        self._read_pending()
        step, epoch = self.state.step, self.state.step / self.setup.work.steps_per_epoch
        row = ValidationRow(step, epoch, *self._validate())
        self.state.validations.append(row)
        self.live.add(row)
        self.display.say(f"  step {step:,}, epoch {epoch:.2f}: validation loss {row.val_loss:.3f}")

    def _end_epoch(self) -> None:
        """Validate, keep the weights, add a row."""
        state, work = self.state, self.setup.work
        loss, bits = self._validate()
        row = EpochRow(
            epoch=state.step // work.steps_per_epoch,
            step=state.step,
            tokens=state.tokens,
            learning_rate=work.learning_rate_at(state.step - 1),
            train_loss=state.epoch_loss.take(),
            val_loss=loss,
            val_perplexity=perplexity(loss),
            val_bits_per_byte=bits,
        )
        model = whole_model(self.model)
        if self.setup.group.is_main:
            state.add_epoch(self.store.save_epoch(row.epoch, model))
        state.epochs.append(row)
        self.live.add(ValidationRow(row.step, row.epoch, loss, bits))
        self.display.epoch(row.epoch, train_loss=row.train_loss, val_loss=loss, bits_per_byte=bits)
        self._find_last_step()

    def _find_last_step(self) -> None:
        """Know where training ends, and say so if that is early."""
        epochs, patience = self.state.epochs, self.setup.work.train.early_stopping
        stop = self.state.stopped_at(patience)
        self._last_step = stop or self.setup.work.steps
        if stop:
            best = min(epochs, key=lambda row: row.val_loss)
            self.display.say(
                f"training ends early, after {len(epochs)} epochs: the last {patience} "
                f"validations brought no lower loss (train.early_stopping); epoch {best.epoch} "
                f"has the lowest, {best.val_loss:.3f}"
            )

    def _checkpoint_due(self) -> bool:
        step, work, every = (
            self.state.step,
            self.setup.work,
            self.setup.runtime.checkpoint.every_steps,
        )
        return (
            step % work.steps_per_epoch == 0
            or step == work.pre_decay_step
            or (every is not None and step % every == 0)
        )

    def _time_is_up(self) -> bool:
        every = self.setup.runtime.checkpoint.every_seconds
        return every is not None and time.monotonic() - self._saved_at >= every

    def _save(self) -> None:
        """Begin to write a checkpoint, after all losses up to here were read and are finite."""
        self._read_pending()
        model, optimizer = whole_model(self.model), self.optimizer.state()
        if self.setup.group.is_main:
            resumable = self.setup.work.train.model_dump(include=RESUMABLE_KEYS)
            self.optimizer.update_after(self.saver.save(self.state, model, optimizer, resumable))
        self._saved_at = time.monotonic()
