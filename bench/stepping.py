"""TokenMill's training step as a function of how often to do it, and rivals timed in turns in one process."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ruamel.yaml import YAML

from tokenmill.model.build import build
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import Compute, choose_compute, configure_process
from tokenmill.model.sequences import Sequences
from tokenmill.training.compile import Compilation, lacks
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.sampler import EpochOrder
from tokenmill.training.step import train_step

Steps = Callable[[int], None]
READ_EVERY = 10
"""Steps between two readings of the loss, as `train.log_every_steps` has it."""

ROOT = Path(__file__).resolve().parent.parent


def section(name: str, **changes: Any) -> dict[str, Any]:
    """A section of this project's params.yaml, with changes; a dictionary inside is merged too."""
    values = YAML(typ="safe").load(ROOT / "params.yaml")[name]
    return values | {k: values[k] | v if isinstance(v, dict) else v for k, v in changes.items()}


def compute_for(precision: str) -> Compute:
    """What TokenMill chooses on this machine, applied to this process."""
    compute = choose_compute(RuntimeParams.model_validate(section("runtime")).device, precision)
    configure_process(compute)
    return compute


def for_long_runs(device: torch.device) -> Compilation:
    """Compiled on a GPU, as a run of some length is; on a CPU as most runs are, not."""
    return Compilation(device.type == "cuda" and not lacks(device), "a long run")


def train_params(**changes: Any) -> TrainParams:
    """The section `train` of the default run, with changes."""
    return TrainParams.model_validate(section("train", **changes))


def tokenmill_steps(
    config: ModelConfig, train: TrainParams, compute: Compute, ids: np.ndarray, *, compilation: Compilation
) -> Steps:
    """A fresh model on this device, ready to train on `ids` step by step, over and over."""
    model = build(config, seed=0).to(compute.device)
    optimizer = Optimizer(model, train, compute)
    forward = compilation.of(model)
    tokens = torch.from_numpy(ids.astype(np.int32)).to(compute.device)
    sequences = Sequences(tokens, context_length=config.context_length, device=compute.device)
    order, done = EpochOrder(sequences=sequences.count, per_step=train.batch_size, seed=0), [0]

    def steps(count: int) -> None:
        for _ in range(count):
            result = train_step(
                forward,
                optimizer,
                sequences,
                order.at(done[0]),
                micro_batch=train.batch_size,
                learning_rate=train.peak,
                gradient_clip=train.gradient_clip,
                compute=compute,
            )
            assert result is not None, "memory does not hold this batch"
            done[0] += 1
            if done[0] % READ_EVERY == 0:
                result.loss.item()

    return steps


@dataclasses.dataclass(frozen=True)
class Timed:
    """Seconds per step of one rival, and how many times faster than the first rival it is."""

    seconds: float
    faster: float


def in_turns(rivals: Mapping[str, Steps], *, rounds: int, steps: int, warm_up: int) -> dict[str, Timed]:
    """Let each do some steps, in turns, so that whatever else the machine does disturbs all alike; medians."""
    for go in rivals.values():
        go(warm_up)
    took: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(rounds):
        for name, go in rivals.items():
            took[name].append(_seconds(go, steps) / steps)
    first = next(iter(took.values()))
    return {
        name: Timed(statistics.median(each), statistics.median(a / b for a, b in zip(first, each, strict=True)))
        for name, each in took.items()
    }


def _seconds(go: Steps, steps: int) -> float:
    _wait()
    began = time.perf_counter()
    go(steps)
    _wait()
    return time.perf_counter() - began


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
