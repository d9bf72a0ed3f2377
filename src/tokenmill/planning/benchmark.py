"""A fresh model that is trained for some steps to see how long they take; no checkpoint is read or written."""

import statistics
import time
from dataclasses import dataclass

import psutil
import torch
from torch import Tensor

from tokenmill.core.errors import UserError
from tokenmill.display.terminal import size
from tokenmill.model.build import build
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import Compute, choose_compute, configure_process
from tokenmill.model.sequences import Sequences
from tokenmill.model.size import memory
from tokenmill.training.compile import Compilation, choose_compilation
from tokenmill.training.memory import sequences_that_fit
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.sampler import EpochSampler
from tokenmill.training.schedule import Workload
from tokenmill.training.step import train_step

LONG = 1.5
"""Seconds: a step that takes longer is not measured whole."""


STEPS = 5
"""Whole ones measured; their median counts."""


class Trial:
    """Steps of a training, one after the other."""

    def __init__(
        self,
        ids: Tensor,
        config: ModelConfig,
        train: TrainParams,
        compute: Compute,
        *,
        compilation: Compilation,
        per_step: int,
    ):
        """Train a model of `config` on `ids`, `per_step` sequences at a time.

        Raises:
            UserError: they do not fill a sequence.
        """
        self._sequences = Sequences(ids, context_length=config.context_length, device=compute.device)
        if not self._sequences.count:
            raise UserError(
                f"model.context_length ({config.context_length}) is longer than the text; take a shorter one."
            )
        self._order = EpochSampler(sequences=self._sequences.count, per_step=per_step, seed=train.seed)
        model = build(config, seed=train.seed).to(compute.device).train()
        self._optimizer = Optimizer(model, train, compute)
        self._forward = compilation.of(model)
        self._config, self._train, self.compute, self.compiled = config, train, compute, compilation.on
        self.micro_batch = sequences_that_fit(config, train.batch_size, compute.device)

    def step(self, number: int, *, sequences: int | None = None) -> int:
        """Do a step, or one over its first `sequences` only; give the tokens that it saw, or 0 where memory ran out."""
        index = self._order.indices_at(number)[:sequences]
        done = train_step(
            self._forward,  # type: ignore[arg-type]
            self._optimizer,
            self._sequences,
            index,
            micro_batch=self.micro_batch,
            learning_rate=self._train.peak,
            gradient_clip=self._train.gradient_clip,
            compute=self.compute,
        )
        return len(index) * self._config.context_length if done else 0


@dataclass(frozen=True)
class Speed:
    """How long a step takes on this machine."""

    seconds: float
    device: str
    measured: str
    """What that is the time of, or follows from."""


def measure(work: Workload, runtime: RuntimeParams) -> Speed:
    """Time some steps of a fresh model on made-up tokens, larger and larger ones, whole ones where they are short.

    A step takes so long for each sequence and so long for the update, so the last two sizes tell any other. Compiled
    code is made for one size of micro-batch, so there the smallest step is a whole one.

    Raises:
        UserError: the model does not fit this machine's memory, or the device is not there.
    """
    compute = choose_compute(runtime.device, work.train.precision)
    configure_process(compute)
    _refuse_too_large(work.config, compute)
    sequences, context = work.sequences_per_step, work.config.context_length
    ids = torch.randint(work.config.vocab_size, (sequences * context + 1,), dtype=torch.int32)
    compilation = choose_compilation(runtime.compile, compute.device, work)
    trial = Trial(ids, work.config, work.train, compute, compilation=compilation, per_step=sequences)
    few = first = min(sequences, trial.micro_batch) if trial.compiled else 1
    before, seconds = 0.0, _warm(trial, first)
    while few < sequences and (seconds < LONG or few == first):
        few, before, seconds = min(2 * few, sequences), seconds, _warm(trial, min(2 * few, sequences))
    if few == sequences:
        many = [seconds, *(_seconds(trial, sequences) for _ in range(STEPS - 1 if seconds < LONG else 0))]
        return Speed(statistics.median(many), compute.name, f"{len(many)} steps")
    half = few // 2
    each = max(seconds - before, 0.0) / half
    return Speed(
        seconds + each * (sequences - few), compute.name, f"steps over {half} and {few} of {sequences} sequences"
    )


def _refuse_too_large(config: ModelConfig, compute: Compute) -> None:
    parts = memory(config, sequences=1, precision="float32", optimizer="adamw")
    need, there = parts.weights + parts.gradients + parts.optimizer, psutil.virtual_memory().available
    if compute.device.type == "cpu" and need > there:
        raise UserError(
            f"the model takes {size(need)} with gradients and optimizer, and {size(there)} are free here; plan it for "
            "other hardware (`tokenmill plan --hardware A100`)."
        )


def _warm(trial: Trial, sequences: int) -> float:
    """How long a step of this size takes; not the first one, which allocates and compiles, unless it is long anyway."""
    first = _seconds(trial, sequences)
    return first if first > LONG and not trial.compiled else _seconds(trial, sequences)


def _seconds(trial: Trial, sequences: int) -> float:
    """How long a step over so many sequences takes."""
    wait(trial.compute)
    began = time.perf_counter()
    done = trial.step(0, sequences=sequences)
    wait(trial.compute)
    if not done:
        raise UserError(f"memory does not hold {sequences} sequences at a time here; set a runtime.micro_batch_size.")
    return time.perf_counter() - began


def wait(compute: Compute) -> None:
    """Until the device has done what it was given."""
    if compute.device.type == "cuda":
        torch.cuda.synchronize()
