"""Whether training on a GPU is right, before it is timed: `python -m bench.training.correctness`.

Small models of all architectures train beside the same on the CPU, in float32. Then: a loss that
is not a number changes no weight; a step for which memory does not suffice changes nothing and
succeeds in smaller pieces; a checkpoint that is written beside steps holds what there was; training
that continues from it ends as if it had never stopped; and compiled steps are those of the
uncompiled model, of one shape though the last step is short, and so are recorded ones.

On a machine without CUDA the same runs on the CPU, as a rehearsal.
"""

import argparse
import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from bench.harness import here, section, train_params
from bench.program import RowFile, command_line
from tokenmill.core.errors import UserError
from tokenmill.model.config import Architecture, ModelConfig
from tokenmill.model.device import Compute, configure_process, is_out_of_memory
from tokenmill.model.gpt import GPT, build
from tokenmill.model.sequences import Sequences
from tokenmill.stage import report_errors
from tokenmill.training.checkpoints.background import AsyncCheckpointer
from tokenmill.training.checkpoints.store import CheckpointStore
from tokenmill.training.compile import Compilation, RecordedStep, missing_compiler
from tokenmill.training.history import RunState
from tokenmill.training.identity import RESUMABLE_KEYS
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.params import OPTIMIZERS, RuntimeParams
from tokenmill.training.step import Batch, MicroBatch, train_step

KINDS = list(itertools.product(get_args(Architecture), OPTIMIZERS))
SIZES = {
    "n_layer": 2,
    "n_head": 4,
    "n_embd": 128,
    "context_length": 64,
    "dropout": 0.0,
    "vocab_size": 1000,
}
"""The vocabulary is no multiple of what tensor cores need."""
# Sequences of a step, and those that there are
BATCH = 12
COUNT = 40
CLOSE = 2e-4
"""How far a loss or a weight may be from its counterpart, in float32."""


@dataclass
class Run:
    """A model in training on a device."""

    architecture: str
    optimizer_name: str
    compute: Compute
    compiled: bool = False
    recorded: bool = False
    losses: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = ModelConfig.model_validate({"architecture": self.architecture} | SIZES)
        self.model = build(config, seed=0).to(self.compute.device)
        self.train = train_params(
            optimizer=self.optimizer_name, batch_size=BATCH, learning_rate=1e-3
        )
        compilation = Compilation(self.compiled, "asked for")
        compiler = compilation.for_update(self.compute.device)
        self.optimizer = Optimizer(
            self.model, self.train, self.compute, compiler=compiler, repeats=self.recorded
        )
        self.forward: GPT = compilation.of(self.model)
        draws = np.random.default_rng(0)
        ids = np.cumsum(draws.integers(1, 4, COUNT * config.context_length + 1)) % config.vocab_size
        tokens = torch.from_numpy(ids.astype(np.int32)).to(self.compute.device)
        self.sequences = Sequences(
            tokens.unfold(0, config.context_length + 1, config.context_length),
            device=self.compute.device,
        )

    def step(
        self, number: int, *, micro_batch: int = BATCH, size: int = BATCH, rate: float = 1e-3
    ) -> None:
        """Make the step of this number; the loss is read by `read`."""
        index = np.random.default_rng(number).permutation(COUNT)[:size]
        self.optimizer.set_rates(rate)
        result = train_step(
            self.forward,
            self.optimizer,
            self.sequences,
            Batch(index),
            micro_batch=MicroBatch(micro_batch),
            compute=self.compute,
        )
        self.losses.append(result.loss)

    def read(self) -> np.ndarray:
        """The losses so far; waits for the device."""
        return torch.stack(self.losses).cpu().numpy()

    def weights(self) -> list[Tensor]:
        """A copy on the host."""
        return [parameter.detach().cpu().clone() for parameter in self.model.parameters()]


def largest_difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """Between two lists of weights."""
    return max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))


def usual_difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """What 999 of 1,000 differences stay below: AdamW's first steps follow a gradient's sign, which
    rounding turns."""
    differences = torch.cat([(a - b).abs().flatten() for a, b in zip(ours, theirs, strict=True)])
    return differences.quantile(0.999).item()


def expect(condition: bool, otherwise: str) -> None:
    """Fail with a sentence."""
    if not condition:
        raise AssertionError(otherwise)


def steps_as_on_the_cpu(architecture: str, optimizer: str, compute: Compute) -> str:
    """Three steps, the last one short, beside the same on the CPU."""
    runs = [
        Run(architecture, optimizer, each)
        for each in (compute, Compute(torch.device("cpu"), torch.float32, True))
    ]
    for run in runs:
        for number, size in enumerate((BATCH, BATCH, 5)):
            run.step(number, micro_batch=8, size=size)
    loss = float(np.abs(runs[0].read() - runs[1].read()).max())
    weight = usual_difference(runs[0].weights(), runs[1].weights())
    expect(
        max(loss, weight) < CLOSE, f"differ by {loss:.1e} in a loss and {weight:.1e} in a weight"
    )
    return f"loss within {loss:.1e}, weights within {weight:.1e}"


def nan_changes_nothing(architecture: str, optimizer: str, compute: Compute) -> str:
    """Neither the step with the NaN nor a later one."""
    run = Run(architecture, optimizer, compute)
    run.step(0)
    before = run.weights()
    nan = torch.full((), torch.nan, device=compute.device)
    for parameter in run.model.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
    run.optimizer.set_rates(1e-3)
    run.optimizer.step(nan)
    expect(largest_difference(run.weights(), before) == 0, "the step changed a weight")
    run.step(1)
    expect(largest_difference(run.weights(), before) == 0, "the step after it changed a weight")
    return "no weight changed"


def memory_that_runs_out(architecture: str, optimizer: str, compute: Compute) -> str:
    """A step in one piece fails and changes nothing; in small pieces it succeeds."""
    run = Run(architecture, optimizer, compute)
    run.step(0, micro_batch=1)
    before = run.weights()
    with little_memory(compute.device):
        try:
            run.step(1)
        except Exception as error:
            expect(is_out_of_memory(error), f"another error: {error}")
        else:
            raise AssertionError("memory did not run out")
        expect(largest_difference(run.weights(), before) == 0, "the failed step changed a weight")
    run.step(1, micro_batch=1)
    expect(bool(np.isfinite(run.read()).all()), "a loss is not finite")
    return "nothing changed, and the smaller pieces fit"


@contextlib.contextmanager
def little_memory(device: torch.device) -> Iterator[None]:
    """Inside, memory holds no step: on a GPU PyTorch gets 1 MiB more than it has; a CPU raises the
    same error."""
    if device.type != "cuda":
        with mock.patch(
            "tokenmill.training.step.loss_on", side_effect=torch.OutOfMemoryError("out of memory")
        ):
            yield
        return
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    allowed = torch.cuda.memory_reserved() + 2**20
    torch.cuda.set_per_process_memory_fraction(allowed / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def checkpoint_beside_steps(architecture: str, optimizer: str, compute: Compute) -> str:
    """It holds what there was when it was asked for; and training that continues from it loses
    nothing."""
    run, again = (Run(architecture, optimizer, compute) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        store = CheckpointStore(Path(folder))
        params = RuntimeParams.model_validate(section("runtime")).checkpoint
        resumable = train_params(epochs=1).model_dump(include=RESUMABLE_KEYS)
        saver = AsyncCheckpointer(store, params, keep_steps=set(), resumable=resumable)
        run.step(0)
        run.step(1)
        before = run.weights()
        state = RunState(step=2)
        with saver.active():
            copied = saver.save(state, run.model, run.optimizer.state())
            run.optimizer.update_after(copied)
            for number in range(2, 6):
                run.step(number)
        (checkpoint,) = store.checkpoints(print)
        again.optimizer.load(checkpoint.load(again.model))
        expect(
            largest_difference(again.weights(), before) == 0,
            "it holds other weights than those of its step",
        )
    for number in range(2, 6):
        again.step(number)
    weight = usual_difference(run.weights(), again.weights())
    expect(weight < CLOSE, f"training that continues ends {weight:.1e} apart")
    return f"continued to within {weight:.1e}"


def compiled_steps(architecture: str, optimizer: str, compute: Compute) -> str:
    """Compiled, and of one shape."""
    from torch._dynamo.utils import counters  # noqa: PLC0415 (loads the compiler)

    counters.clear()
    runs = [Run(architecture, optimizer, compute, compiled=compiled) for compiled in (True, False)]
    graphs = []
    for number, size in enumerate((BATCH, 5)):
        for run in runs:
            run.step(number, micro_batch=8, size=size)
        graphs.append(counters["stats"]["unique_graphs"])
    loss = float(np.abs(runs[0].read() - runs[1].read()).max())
    expect(loss < CLOSE, f"differ by {loss:.1e} in a loss")
    more = graphs[1] - graphs[0]
    expect(
        more == 0 or compute.device.type != "cuda",
        f"compiled {more} graphs more for a short last step",
    )
    return f"loss within {loss:.1e}, {graphs[1]} graphs"


def recorded_steps(architecture: str, optimizer: str, compute: Compute) -> str:
    """A recorded step, repeated with other sequences and another rate, does what an ordinary one
    does."""
    run = Run(architecture, optimizer, compute, recorded=True)
    ordinary = Run(architecture, optimizer, compute)
    step_on = partial(
        train_step,
        run.forward,
        run.optimizer,
        run.sequences,
        micro_batch=MicroBatch(8),
        compute=compute,
    )
    recorded = RecordedStep(step_on, sequences=BATCH, device=compute.device)
    for number in range(8):
        rate = 1e-3 * (number + 1)
        index = np.random.default_rng(number).permutation(COUNT)[:BATCH]
        run.optimizer.set_rates(rate)
        run.losses.append(recorded(Batch(index)).loss)
        ordinary.step(number, micro_batch=8, rate=rate)
    loss = float(np.abs(run.read() - ordinary.read()).max())
    expect(loss < CLOSE, f"differ by {loss:.1e} in a loss")
    return f"loss within {loss:.1e}"


CHECKS: dict[str, Callable[[str, str, Compute], str]] = {
    "steps as on the CPU": steps_as_on_the_cpu,
    "a NaN changes nothing": nan_changes_nothing,
    "out of memory": memory_that_runs_out,
    "checkpoint beside steps": checkpoint_beside_steps,
    "compiled": compiled_steps,
    "recorded": recorded_steps,
}


def rows(compute: Compute, *, compiled: bool) -> Iterator[dict[str, Any]]:
    """A row for each check and kind of model; one that fails fails alone."""
    for (name, check), kind in itertools.product(CHECKS.items(), KINDS):
        if (name == "compiled" and not compiled) or (
            name == "recorded" and compute.device.type != "cuda"
        ):
            continue
        row: dict[str, Any] = {"check": name, "model": " ".join(kind)}
        try:
            yield row | {"passed": True, "found": check(*kind, compute)}
        except Exception as error:  # whatever it is, the other checks go on
            yield row | {"passed": False, "found": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Check, and print."""
    options = command_line(__doc__, tiny="without what compiles").parse_args()
    report_errors(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """All checks.

    Raises:
        UserError: one of them failed.
    """
    compute = Compute(here(), torch.float32, exact_float32=True)
    configure_process(compute)
    file = RowFile(options.json)
    failed = 0
    for row in rows(compute, compiled=not options.tiny and not missing_compiler(compute.device)):
        verdict = "passed" if row["passed"] else "FAILED"
        print(f"{row['check']:24}{row['model']:16}{verdict:8}{row['found']}", flush=True)
        file.add(row)
        failed += not row["passed"]
    if failed:
        raise UserError(f"{failed} checks failed on {compute.name}.")


if __name__ == "__main__":
    main()
