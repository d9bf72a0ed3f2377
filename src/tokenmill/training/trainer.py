"""What is to be trained, on what, and how; and what follows from that alone: steps, their order, what is kept.

A step whose loss or gradient is no longer finite ends the run before its update.

The training loop: steps, and between them what is due (a row, a validation, a checkpoint, an end).

Everything a step needs follows from its number, so the loop holds no state but `RunState`; going on from a checkpoint
is the same as never having stopped, bit by bit on the CPU.
"""

import functools
import math
import time
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from tokenmill.core.token_file import TokenMetadata
from tokenmill.costs import Timing
from tokenmill.display.training import TrainingDisplay
from tokenmill.model.device import Compute
from tokenmill.model.gpt import GPT
from tokenmill.model.sequences import Sequences, evenly_spread
from tokenmill.model.validation import bits_per_byte, mean_loss, perplexity
from tokenmill.training.checkpoint import RESUMABLE_KEYS, Checkpoint, CheckpointStore
from tokenmill.training.compile import Compilation
from tokenmill.training.distributed import FlagSync, Group, whole_model
from tokenmill.training.history import EpochRow, RunState, StepRow
from tokenmill.training.interrupt import Interrupt
from tokenmill.training.memory import MicroBatch
from tokenmill.training.mirror import Mirror
from tokenmill.training.muon import momentum_at
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.resume import ResumePoint
from tokenmill.training.sampler import EpochSampler
from tokenmill.training.saving import AsyncCheckpointer
from tokenmill.training.schedule import lr_at, pre_decay_step
from tokenmill.training.step import StepResult, seed_dropout, train_step


@dataclass(frozen=True)
class TrainingSetup:
    """What is to be trained, on what, and how."""

    train: TrainParams
    runtime: RuntimeParams
    compute: Compute
    compilation: Compilation
    tokens: TokenMetadata
    train_sequences: Sequences
    val_sequences: Sequences
    group: Group

    @property
    def per_step(self) -> int:
        """Sequences that one optimizer step sees."""
        return self.train.batch_size * self.train.gradient_accumulation_steps

    @functools.cached_property
    def order(self) -> EpochSampler:
        """The order of the training sequences."""
        return EpochSampler(sequences=self.train_sequences.count, per_step=self.per_step, seed=self.train.seed)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.order.steps_per_epoch * self.train.epochs

    @property
    def trunk(self) -> int | None:
        """The step after which the learning rate depends on the number of epochs; its checkpoint is kept."""
        return pre_decay_step(self.train, steps_per_epoch=self.order.steps_per_epoch)

    @property
    def kept_steps(self) -> set[int]:
        """The checkpoints that a later run with more epochs may need."""
        return {self.total_steps} | ({self.trunk} if self.trunk is not None else set())

    @property
    def horizon(self) -> dict[str, Any]:
        """The parameters that a later run may change and still go on."""
        return self.train.model_dump(include=RESUMABLE_KEYS)


SOME_SEQUENCES = 8
"""How many of a step's sequences are named where it diverges."""


@dataclass
class Diverged(Exception):  # noqa: N818 (a state of the training, not yet an error)
    """The step after `step` steps gave a loss or a gradient norm that is not finite; its update was not made."""

    step: int
    loss: float
    norm: float

    def describe(self, order: EpochSampler, learning_rate: float) -> str:
        """Which step it was, on what, at which rate; a sentence."""
        epoch, position = divmod(self.step, order.steps_per_epoch)
        sequences = ", ".join(map(str, order.indices_at(self.step)[:SOME_SEQUENCES]))
        return (
            f"training diverged in step {self.step + 1:,}, epoch {epoch + 1}, batch {position + 1:,} of "
            f"{order.steps_per_epoch:,} (sequences {sequences}, …): loss {self.loss}, gradient norm {self.norm}, "
            f"learning rate {learning_rate:.3g}. Its update was not made"
        )


def advice(train: TrainParams) -> str:
    """What a user can do about it."""
    return (
        f"Lower train.learning_rate ({train.peak}), raise train.schedule.warmup_steps "
        f"({train.schedule.warmup_steps}), or take another train.precision ({train.precision})."
    )


class Trainer:
    """Trains one model from where it stands to the end or to the first reason to stop."""

    def __init__(
        self,
        job: TrainingSetup,
        model: GPT,
        store: CheckpointStore,
        micro_batch: MicroBatch,
        display: TrainingDisplay,
        *,
        mirror: Mirror | None,
    ):
        """Train `model`, which lies on the job's device, or on the host if it is to be cut."""
        self.job, self.model, self.store, self.display = job, model, store, display
        self.micro_batch = micro_batch
        self.saver = AsyncCheckpointer(
            store, keep=job.runtime.checkpoint.keep, keep_steps=job.kept_steps, mirror=mirror
        )
        self.forward: GPT = model
        self.optimizer: Optimizer
        self._optimizer_state: dict[str, Tensor] = {}
        self.order = job.order
        self.state = RunState()
        self._pending: list[tuple[StepResult, int]] = []
        self._saved_at = time.monotonic()

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Take over weights, optimizer and position of a checkpoint."""
        self._optimizer_state = checkpoint.load(self.model)
        self.state = checkpoint.state

    def run(self, beginning: ResumePoint, interrupt: Interrupt) -> Timing:
        """Train from `beginning` to the end.

        Raises:
            UserError: stopped from outside (after saving), or the loss is no longer finite (the last good
                checkpoint stays).
        """
        if beginning.checkpoint:
            self.load_checkpoint(beginning.checkpoint)
        self._sync_and_wrap()
        folder = self.store.folder if self.job.group.is_main else None
        timing = Timing(folder, step=self.state.step, tokens=self.state.tokens, prices=self.job.runtime.cost)
        flags = FlagSync(self.job.group)
        self.model.train()
        with interrupt, self.saver.active():
            try:
                self._train(timing, flags, interrupt)
            except Diverged as diverged:
                flags.wait()
                self.saver.wait()
                self._end(diverged)
        flags.wait()
        return timing

    def _train(self, timing: Timing, flags: FlagSync, interrupt: Interrupt) -> None:
        """Make the steps that are left, and what is due between them."""
        while self.state.step < self.job.total_steps:
            self._step()
            self._log_if_due(timing)
            with timing.excluded():
                self._between_steps(interrupt.reason, flags)

    def _sync_and_wrap(self) -> None:
        """Put all processes where the leader stands, then let them compute together."""
        job = self.job
        self.state = RunState.from_json(job.group.broadcast(self.state.as_json()))
        self.forward = job.compilation.of(job.group.wrap(self.model, job.compute.device))  # type: ignore[assignment]
        self.optimizer = Optimizer(self.model, job.train, job.compute)
        if state := job.group.broadcast_tensors(self._optimizer_state):
            self.optimizer.load(state)
        self._optimizer_state = {}

    def _between_steps(self, reason: str | None, flags: FlagSync) -> None:
        """Do what is due now: an epoch's end, a checkpoint, the end of this session for a `reason`."""
        state = self.state
        stop, save = flags.all_reduce(stop=reason is not None, save=self._time_is_up())
        if state.step % self.order.steps_per_epoch == 0:
            self._end_epoch()
        if stop or save or state.step == self.job.trunk or self._checkpoint_due():
            self._save()
        if stop:
            self.saver.wait()
            self.job.group.end(
                f"{reason or 'another process was stopped'} after step {state.step:,} of {self.job.total_steps:,}; "
                "everything up to there is saved, and `dvc repro` goes on from it."
            )

    def _step(self) -> None:
        """One optimizer step; its results are read later, when a row is due."""
        index = self.order.indices_at(self.state.step)
        while (result := self._try_step(index)) is None:
            self.display.say(self.micro_batch.shrink())
        self.state.step += 1
        self.state.tokens += len(index) * self.model.config.context_length
        self._pending.append((result, len(index)))

    def _try_step(self, index: np.ndarray) -> StepResult | None:
        """Update the model, or None where memory does not hold a micro-batch."""
        train, step = self.job.train, self.state.step
        if self.model.config.dropout:
            seed_dropout(train.seed, step, rank=self.job.group.rank)
        return train_step(
            self.forward,
            self.optimizer,
            self.job.train_sequences,
            index,
            micro_batch=self.micro_batch.sequences,
            learning_rate=self._learning_rate(step),
            momentum=momentum_at(step),
            gradient_clip=train.gradient_clip,
            compute=self.job.compute,
            group=self.job.group,
        )

    def _learning_rate(self, step: int) -> float:
        return lr_at(step, train=self.job.train, steps_per_epoch=self.order.steps_per_epoch)

    def _read(self) -> float:
        """Read the losses of the steps since the last reading; give the last gradient norm."""
        if not self._pending:
            return math.nan
        losses: list[float] = torch.stack([result.loss for result, _ in self._pending]).tolist()
        norms: list[float] = torch.stack([result.gradient_norm for result, _ in self._pending]).tolist()
        for done, (loss, norm) in enumerate(zip(losses, norms, strict=True)):
            if not math.isfinite(loss) or not (math.isfinite(norm) or self.optimizer.skips_overflow):
                self._take_back(len(losses) - done)
                raise Diverged(self.state.step, loss, norm)
            sequences = self._pending[done][1]
            self.state.epoch_loss.add(loss, sequences)
            self.state.interval_loss.add(loss, sequences)
        self._pending.clear()
        if not math.isfinite(norms[-1]) and self.optimizer.is_hopeless:
            raise Diverged(self.state.step - 1, losses[-1], norms[-1])
        return norms[-1]

    def _take_back(self, steps: int) -> None:
        """Forget the last steps, which changed no weight."""
        self.state.step -= steps
        self.state.tokens -= (
            sum(sequences for _, sequences in self._pending[-steps:]) * self.model.config.context_length
        )
        self._pending.clear()

    def _end(self, diverged: Diverged) -> NoReturn:
        """Save what was before the step that diverged, and end the run."""
        job, store, step = self.job, self.store, self.state.step
        is_new = 0 < step == diverged.step and not store.checkpoint_folder(step).exists()
        if job.group.broadcast(is_new):
            self._save()
            self.saver.wait()
        good = store.newest_upto(diverged.step)
        saved = f"the last good checkpoint is {good}" if good else "there was no checkpoint yet"
        told = diverged.describe(self.order, self._learning_rate(diverged.step))
        job.group.end(f"{told}; {saved}. {advice(job.train)}")

    def _log_if_due(self, timing: Timing) -> None:
        """Close an interval: read the losses, add a row, show it."""
        state, every = self.state, self.job.train.log_every_steps
        if state.step % every and state.step % self.order.steps_per_epoch:
            return
        norm = self._read()
        row = StepRow(
            step=state.step,
            epoch=state.step / self.order.steps_per_epoch,
            loss=state.interval_loss.take(),
            learning_rate=self._learning_rate(state.step - 1),
            gradient_norm=norm,
        )
        state.steps.append(row)
        rate = timing.interval(step=state.step, tokens=state.tokens)
        self.display.interval(row, rate, timing.total)

    def _end_epoch(self) -> None:
        """Validate, keep the weights, add a row."""
        state, val = self.state, self.job.tokens.val
        loss = mean_loss(
            self.forward,
            self.job.val_sequences,
            evenly_spread(self.job.val_sequences.count, self.job.train.validation_sequences),
            micro_batch=self.micro_batch.sequences,
            compute=self.job.compute,
            shrink=self.job.group.size == 1,
        )
        row = EpochRow(
            epoch=state.step // self.order.steps_per_epoch,
            step=state.step,
            tokens=state.tokens,
            learning_rate=self._learning_rate(state.step - 1),
            train_loss=state.epoch_loss.take(),
            val_loss=loss,
            val_perplexity=perplexity(loss),
            val_bits_per_byte=bits_per_byte(loss, tokens=val.tokens, text_bytes=val.bytes),
        )
        model = whole_model(self.model)
        if self.job.group.is_main:
            state.epoch_weights.append(self.store.save_epoch(row.epoch, model))
        state.epochs.append(row)
        self.display.epoch(row)

    def _checkpoint_due(self) -> bool:
        step, every = self.state.step, self.job.runtime.checkpoint.every_steps
        return step % self.order.steps_per_epoch == 0 or (every is not None and step % every == 0)

    def _time_is_up(self) -> bool:
        every = self.job.runtime.checkpoint.every_seconds
        return every is not None and time.monotonic() - self._saved_at >= every

    def _save(self) -> None:
        """Begin to write a checkpoint, once the steps up to here are known to be sound."""
        self._read()
        model, optimizer = whole_model(self.model), self.optimizer.state()
        if self.job.group.is_main:
            self.saver.save(self.state, model, optimizer, self.job.horizon)
        self._saved_at = time.monotonic()
