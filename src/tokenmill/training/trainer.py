"""What is to be trained, on what, and how; and what follows from that alone: steps, their order, what is kept.

A step whose loss or gradient is no longer finite: what is said about it, and where training goes back to, if it may.

The place follows from the step alone, so that a run that was killed on its way comes to the same end: the newest
checkpoint on a mark, a step divisible by `train.divergence.every_steps`, at least so many steps before.

The training loop: steps, and between them what is due (a row, a validation, a checkpoint, an end).

Everything a step needs follows from its number, so the loop holds no state but `RunState`; going on from a checkpoint
is the same as never having stopped, bit by bit on the CPU.
"""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from tokenmill.training.checkpoint import HORIZON, Checkpoint, Store
from tokenmill.training.compile import Compilation
from tokenmill.training.distributed import Agreement, Group, whole_model
from tokenmill.training.history import EpochRow, Return, RunState, StepRow
from tokenmill.training.interrupt import Interrupt
from tokenmill.training.memory import MicroBatch
from tokenmill.training.muon import momentum_at
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.params import DivergenceParams, RuntimeParams, TrainParams
from tokenmill.training.resume import Beginning, is_exact
from tokenmill.training.sampler import EpochOrder
from tokenmill.training.saving import Mirror, Saver
from tokenmill.training.schedule import decay_begins, lr_at
from tokenmill.training.step import StepResult, seed_dropout, train_step


@dataclass(frozen=True)
class Job:
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
    def order(self) -> EpochOrder:
        """The order of the training sequences."""
        return EpochOrder(sequences=self.train_sequences.count, per_step=self.per_step, seed=self.train.seed)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.order.steps_per_epoch * self.train.epochs

    @property
    def trunk(self) -> int | None:
        """The step after which the learning rate depends on the number of epochs; its checkpoint is kept."""
        return decay_begins(self.train, steps_per_epoch=self.order.steps_per_epoch)

    def kept_at(self, step: int) -> set[int]:
        """The checkpoints that a run which has come to `step`, or a later one with more epochs, may need."""
        last = {self.total_steps} | ({self.trunk} if self.trunk is not None else set())
        return last.union(*(marks(each, self.train.divergence) for each in {step} | last))

    @property
    def horizon(self) -> dict[str, Any]:
        """The parameters that a later run may change and still go on."""
        return self.train.model_dump(include=HORIZON)


SOME_SEQUENCES = 8
"""How many of a step's sequences are named where it diverges."""


@dataclass
class Diverged(Exception):  # noqa: N818 (a state of the training, not yet an error)
    """The step after `step` steps gave a loss or a gradient norm that is not finite; its update was not made."""

    step: int
    loss: float
    norm: float

    def describe(self, order: EpochOrder, learning_rate: float) -> str:
        """Which step it was, on what, at which rate; a sentence."""
        epoch, position = divmod(self.step, order.steps_per_epoch)
        sequences = ", ".join(map(str, order.at(self.step)[:SOME_SEQUENCES]))
        return (
            f"training diverged in step {self.step + 1:,}, epoch {epoch + 1}, batch {position + 1:,} of "
            f"{order.steps_per_epoch:,} (sequences {sequences}, …): loss {self.loss}, gradient norm {self.norm}, "
            f"learning rate {learning_rate:.3g}. Its update was not made"
        )


def marks(step: int, divergence: DivergenceParams) -> set[int]:
    """The steps whose checkpoints a run that has come to `step` may have to go back to; none if it may not."""
    if not divergence.returns:
        return set()
    return set(range(_mark_before(step, divergence), step + 1, divergence.every_steps))


def _mark_before(step: int, divergence: DivergenceParams) -> int:
    every = divergence.every_steps
    return max(0, (step // every - 1) * every)


def where_to_return(
    store: Store, train: TrainParams, state: RunState, *, steps_per_epoch: int, say: Callable[[str], None]
) -> Beginning | None:
    """Where a run that diverged after `state` begins again, at a lower rate; None if it may not, or there is nothing.

    Where the mark's checkpoint is gone (the parameter was set only now, or it is damaged), another earlier one serves,
    and this is said: as far as there is one before the mark, else the oldest.
    """
    divergence = train.divergence
    if len(state.returns) >= divergence.returns:
        return None
    mark = _mark_before(state.step, divergence)
    earlier = [
        checkpoint
        for checkpoint in store.checkpoints(say)
        if checkpoint.step < state.step
        and state.descends_from(checkpoint.state)
        and is_exact(checkpoint, train, steps_per_epoch=steps_per_epoch)
    ]
    if not earlier:
        return None
    checkpoint = next((each for each in earlier if each.step <= mark), earlier[-1])
    returns = [*state.returns, Return(diverged=state.step, to=checkpoint.step)]
    gone = "" if checkpoint.step == mark else f" (that of step {mark:,} is gone, so the result is not repeatable)"
    return Beginning(
        replace(checkpoint, state=replace(checkpoint.state, returns=returns)),
        f"going back to the checkpoint of step {checkpoint.step:,}{gone} and on with "
        f"{divergence.rate_factor ** len(returns):.3g} of the learning rate (return {len(returns)} of "
        f"{divergence.returns})",
    )


def advice(train: TrainParams, *, returns: int) -> str:
    """What a user can do about it."""
    again = f" It had gone back {returns} time{'s' * (returns > 1)}." if returns else ""
    return (
        f"{again} Lower train.learning_rate ({train.peak}), raise train.schedule.warmup_steps "
        f"({train.schedule.warmup_steps}), take another train.precision ({train.precision}), or let training go back "
        f"by itself and on with a lower rate (train.divergence.returns, {train.divergence.returns})."
    )


class Trainer:
    """Trains one model from where it stands to the end, to the first reason to stop, or to where it has to go back."""

    def __init__(
        self,
        job: Job,
        model: GPT,
        store: Store,
        micro_batch: MicroBatch,
        display: TrainingDisplay,
        *,
        mirror: Mirror | None,
    ):
        """Train `model`, which lies on the job's device, or on the host if it is to be cut."""
        self.job, self.model, self.store, self.display = job, model, store, display
        self.micro_batch = micro_batch
        self.saver = Saver(store, keep=job.runtime.checkpoint.keep, also=job.kept_at, mirror=mirror)
        self.forward: GPT = model
        self.optimizer: Optimizer
        self._optimizer_state: dict[str, Tensor] = {}
        self.order = job.order
        self.state = RunState()
        self._unread: list[tuple[StepResult, int]] = []
        self._saved_at = time.monotonic()

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        """Take over weights, optimizer and position of a checkpoint."""
        self._optimizer_state = checkpoint.load(self.model)
        self.state = checkpoint.state

    def run(self, beginning: Beginning, interrupt: Interrupt) -> Timing | Beginning:
        """Train from `beginning` to the end, or until the run diverges and is to begin again, with a model of its own.

        Raises:
            UserError: stopped from outside (after saving), or the loss is no longer finite (the last good
                checkpoint stays).
        """
        if beginning.checkpoint:
            self.go_on_from(beginning.checkpoint)
        self._meet()
        folder = self.store.folder if self.job.group.leads else None
        timing = Timing(folder, step=self.state.step, tokens=self.state.tokens, prices=self.job.runtime.cost)
        agreement = Agreement(self.job.group)
        self.model.train()
        with interrupt, self.saver.active():
            try:
                self._train(timing, agreement, interrupt)
            except Diverged as diverged:
                agreement.settle()
                self.saver.wait()
                return self._go_back(diverged, timing) or self._end(diverged)
        agreement.settle()
        return timing

    def _train(self, timing: Timing, agreement: Agreement, interrupt: Interrupt) -> None:
        """Make the steps that are left, and what is due between them."""
        if self.state.step == 0 and not self.state.returns and marks(0, self.job.train.divergence):
            self._save()
        while self.state.step < self.job.total_steps:
            self._step()
            self._log_if_due(timing)
            with timing.excluded():
                self._between_steps(interrupt.reason, agreement)

    def _meet(self) -> None:
        """Put all processes where the leader stands, then let them compute together."""
        job = self.job
        self.state = RunState.from_json(job.group.share(self.state.as_json()))
        self.forward = job.compilation.of(job.group.wrap(self.model, job.compute.device))  # type: ignore[assignment]
        self.optimizer = Optimizer(self.model, job.train, job.compute)
        if state := job.group.share_tensors(self._optimizer_state):
            self.optimizer.load(state)
        self._optimizer_state = {}

    def _between_steps(self, reason: str | None, agreement: Agreement) -> None:
        """Do what is due now: an epoch's end, a checkpoint, the end of this session for a `reason`."""
        state = self.state
        stop, save = agreement.reach(stop=reason is not None, save=self._time_is_up())
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
        index = self.order.at(self.state.step)
        while (result := self._try_step(index)) is None:
            self.display.say(self.micro_batch.shrink())
        self.state.step += 1
        self.state.tokens += len(index) * self.model.config.context_length
        self._unread.append((result, len(index)))

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
        lower = self.job.train.divergence.rate_factor ** len(self.state.returns)
        return lr_at(step, train=self.job.train, steps_per_epoch=self.order.steps_per_epoch) * lower

    def _read(self) -> float:
        """Read the losses of the steps since the last reading; give the last gradient norm."""
        if not self._unread:
            return math.nan
        losses: list[float] = torch.stack([result.loss for result, _ in self._unread]).tolist()
        norms: list[float] = torch.stack([result.gradient_norm for result, _ in self._unread]).tolist()
        for done, (loss, norm) in enumerate(zip(losses, norms, strict=True)):
            if not math.isfinite(loss) or not (math.isfinite(norm) or self.optimizer.skips_overflow):
                self._take_back(len(losses) - done)
                raise Diverged(self.state.step, loss, norm)
            sequences = self._unread[done][1]
            self.state.epoch_loss.add(loss, sequences)
            self.state.interval_loss.add(loss, sequences)
        self._unread.clear()
        if not math.isfinite(norms[-1]) and self.optimizer.is_hopeless:
            raise Diverged(self.state.step - 1, losses[-1], norms[-1])
        return norms[-1]

    def _take_back(self, steps: int) -> None:
        """Forget the last steps, which changed no weight."""
        self.state.step -= steps
        self.state.tokens -= sum(sequences for _, sequences in self._unread[-steps:]) * self.model.config.context_length
        self._unread.clear()

    def _go_back(self, diverged: Diverged, timing: Timing) -> Beginning | None:
        """Where to begin again, with all that came after it given up; None if nowhere. Every process is told which."""
        state, beginning = self.state, None
        if self.job.group.leads:
            beginning = where_to_return(
                self.store,
                self.job.train,
                replace(state, step=diverged.step),
                steps_per_epoch=self.order.steps_per_epoch,
                say=self.display.say,
            )
        if not self.job.group.share(beginning is not None):
            return None
        timing.interval(step=state.step, tokens=state.tokens)
        if beginning is None:
            return Beginning(None, "")  # the leader has it
        self.saver.give_up(range(beginning.step + 1, state.step + 1))
        return replace(beginning, sentence=f"{self._told(diverged)}; {beginning.sentence}")

    def _end(self, diverged: Diverged) -> NoReturn:
        """Save what was before the step that diverged, and end the run."""
        job, store, step = self.job, self.store, self.state.step
        is_new = 0 < step == diverged.step and not store.checkpoint_folder(step).exists()
        if job.group.share(is_new):
            self._save()
            self.saver.wait()
        good = store.newest_upto(diverged.step)
        saved = f"the last good checkpoint is {good}" if good else "there was no checkpoint yet"
        job.group.end(f"{self._told(diverged)}; {saved}.{advice(job.train, returns=len(self.state.returns))}")

    def _told(self, diverged: Diverged) -> str:
        return diverged.describe(self.order, self._learning_rate(diverged.step))

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
        if self.job.group.leads:
            state.epoch_weights.append(self.store.save_epoch(row.epoch, model))
        state.epochs.append(row)
        self.display.epoch(row)

    def _checkpoint_due(self) -> bool:
        step, every = self.state.step, self.job.runtime.checkpoint.every_steps
        return (
            step % self.order.steps_per_epoch == 0
            or (every is not None and step % every == 0)
            or step in marks(step, self.job.train.divergence)
        )

    def _time_is_up(self) -> bool:
        every = self.job.runtime.checkpoint.every_seconds
        return every is not None and time.monotonic() - self._saved_at >= every

    def _save(self) -> None:
        """Begin to write a checkpoint, once the steps up to here are known to be sound."""
        self._read()
        model, optimizer = whole_model(self.model), self.optimizer.state()
        if self.job.group.leads:
            self.saver.save(self.state, model, optimizer, self.job.horizon)
        self._saved_at = time.monotonic()
