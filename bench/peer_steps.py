"""A table of steps: nanoGPT's and TokenMill's in turns, each in a process of its own, as it comes."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench import nanogpt
from bench.stepping import Steps, compute_for, tokenmill_steps, train_params
from bench.turns import Rival, Timed, measure
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import Compute, choose_device
from tokenmill.training.compile import Compilation

Row = dict[str, Any]

KINDS = (("gpt2", "adamw", "equal"), ("gpt2", "adamw", "auto"), ("modern", "adamw", "auto"), ("modern", "muon", "auto"))
"""Architecture, optimizer and precision of TokenMill's rows; `equal` is the precision of nanoGPT's."""


def steps_table(
    checkout: Path | None, ids: np.ndarray, shape: dict[str, int], *, batch: int, ways: tuple[bool, ...], rounds: int
) -> list[Row]:
    """Tokens per second of all, nanoGPT first where its checkout is given; `ways`: compiled, not, or both."""
    on_gpu = torch.cuda.is_available()
    rivals: dict[str, Rival] = {}
    for name, rival in _rivals(checkout, ids, shape, batch=batch, ways=ways, equal="bfloat16" if on_gpu else "float32"):
        rivals.setdefault(name, rival)  # `auto` may be the precision of nanoGPT's
    at_a_time, steps = (1, 10) if on_gpu else (len(rivals), 30)  # a turn on a CPU begins with cold caches
    timed = measure(rivals, rounds=rounds, steps=steps, at_a_time=at_a_time)
    first = next((one for one in timed.values() if not one.failed), Timed())
    return [_row(name, one, first, batch * shape["context_length"]) for name, one in timed.items()]


def _rivals(
    checkout: Path | None, ids: np.ndarray, shape: dict[str, int], *, batch: int, ways: tuple[bool, ...], equal: str
) -> Iterator[tuple[str, Rival]]:
    """Names and who they are."""
    for compiled in ways:
        end = ", compiled" if compiled and len(ways) > 1 else ""
        how = {"precision": equal, "batch": batch, "compiled": compiled}
        theirs = partial(their_steps, checkout, ids, shape, **how) if checkout else None
        if theirs:
            yield f"nanoGPT, {equal}{end}", Rival(partial(theirs, biases=True), is_stage=False)
        for architecture, optimizer, wanted in KINDS:
            precision = equal if wanted == "equal" else wanted
            name = f"TokenMill {architecture}, {optimizer}, {_called(precision)}{end}"
            model = {"architecture": architecture, "dropout": 0.0} | shape
            train = {"batch_size": batch, "optimizer": optimizer, "precision": precision}
            yield name, Rival(partial(our_steps, ids, model, train, compiled=compiled), is_stage=True)
        if theirs:
            yield f"nanoGPT without biases, {equal}{end}", Rival(partial(theirs, biases=False), is_stage=False)


def _called(precision: str) -> str:
    return str(compute_for(precision).precision).removeprefix("torch.")


def their_steps(checkout: Path, ids: np.ndarray, shape: dict[str, int], *, precision: str, **how: Any) -> Steps:
    """nanoGPT's, with the settings of its own script; `how` as `nanogpt.steps_of` has it."""
    device = choose_device("auto")
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        shape = shape | {"vocab_size": -(-shape["vocab_size"] // 64) * 64}
    compute = Compute(device, getattr(torch, precision))
    return nanogpt.steps_of(checkout, compute, ids, shape, **how)


def our_steps(ids: np.ndarray, model: dict[str, Any], train: dict[str, Any], *, compiled: bool) -> Steps:
    """TokenMill's, of this model."""
    section = train_params(learning_rate=1e-4, beta2=0.99, **train)
    config, compute = ModelConfig.model_validate(model), compute_for(section.precision)
    return tokenmill_steps(config, section, compute, ids, compilation=Compilation(compiled, "asked for"))


def _row(name: str, one: Timed, first: Timed, tokens: int) -> Row:
    if one.failed:
        return {"steps": name, "left out": one.failed}
    return {
        "steps": name,
        "ms": round(one.seconds * 1e3, 2),
        "tokens/s": round(tokens / one.seconds),
        "times the first": round(one.times(first), 2),
        "first step, s": round(one.first, 1),
    }
