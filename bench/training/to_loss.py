"""Whole trainings to a loss, against each other: TokenMill's stage `train` and nanoGPT's script,
each as a process, and one measure of a model's loss for all."""

import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ruamel.yaml import YAML
from torch import Tensor, nn
from torch.nn import functional as F

from bench.harness import section
from bench.program import ROOT, environment
from bench.training import nanogpt
from bench.training.text import write_tokens
from tokenmill.core.errors import UserError
from tokenmill.core.params import read_yaml
from tokenmill.core.paths import HISTORY
from tokenmill.formats.records import read_rows
from tokenmill.model.gpt import GPT, parameter_count
from tokenmill.model.huggingface import load_model
from tokenmill.model.manifest import read_manifest
from tokenmill.training.history import EpochRow

Row = dict[str, Any]

MARGIN = 0.001
"""Nats by which a run ends below its mark. It validates in its own precision, and what counts is
measured in float32: in bfloat16 a run was seen to end 0.0002 above."""

WITHOUT_CHECK = """
from stages import train
from tokenmill.stage import report_errors
report_errors(train.main)
"""
"""The stage `train` where `tokenizers` is not installed, which the check of all of params.yaml
imports."""


@dataclass(frozen=True)
class Preset:
    """A training: what it changes in sections of params.yaml, and what it is for."""

    model: dict[str, Any]
    train: dict[str, Any]
    runtime: dict[str, Any] = field(default_factory=dict)
    marks: tuple[float, ...] = ()
    """Validation losses on Tiny Shakespeare, in nats per character, from high to low."""


@dataclass(frozen=True)
class Text:
    """A text as numbers, and a folder to train in."""

    train: np.ndarray
    val: np.ndarray
    vocabulary: int
    folder: Path

    def new_folder(self, name: str) -> Path:
        """A folder that nothing has used."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))


def against_nanogpt(
    checkout: Path,
    recipe: nanogpt.Recipe,
    preset: Preset,
    text: Text,
    *,
    ours: Text | None = None,
    seed: int = 0,
) -> Iterator[Row]:
    """nanoGPT's row, and that of the training that ends at its loss.

    Args:
        ours: the part of the text that TokenMill gets; without it, all.
    """
    theirs = nanogpts_row(checkout, recipe, text)
    yield theirs
    row = reach(preset, theirs["loss"], ours or text, seed=seed)
    yield row | {
        f"times fewer {name}": round(theirs[name] / row[name], 1) for name in ("seconds", "tokens")
    }


def nanogpts_row(checkout: Path, recipe: nanogpt.Recipe, text: Text) -> Row:
    """Run nanoGPT's script from start to end, and measure its model."""
    here = text.new_folder("nanogpt")
    seconds = nanogpt.run_recipe(checkout, recipe, here, train=text.train, val=text.val)
    model = nanogpt.trained(checkout, here)
    loss = mean_loss(lambda x, y: model(x, y)[0], model, text.val, recipe.context)
    return {"who": "nanoGPT", "loss": round(loss, 4)} | _cost(seconds, recipe.tokens)


def reach(preset: Preset, mark: float | None, text: Text, *, seed: int) -> Row:
    """Train until the validation loss is at most `mark`, in nats per character, or to the end."""
    here = text.new_folder("tokenmill")
    write_tokens(
        here / "data" / "tokens", train=text.train, val=text.val, vocabulary=text.vocabulary
    )
    model = section("model", **{"dropout": 0.0} | preset.model) | {"start_from": "models/random"}
    target = None if mark is None else mark - MARGIN
    changes = preset.train | {"seed": seed, "target_loss": target, "validation_bytes": None}
    sections = {"model": model, "train": section("train", **changes)}
    if preset.runtime:
        sections["runtime"] = section("runtime", **preset.runtime)
    seconds, gpt = train_stage(sections, here)
    loss = mean_loss(lambda x, _: gpt(x), gpt, text.val, gpt.config.context_length)
    reached = {} if mark is None else {"mark": mark, "reached": loss <= mark}
    return {
        "who": f"TokenMill, {gpt.config.architecture}, seed {seed}",
        "loss": round(loss, 4),
        **reached,
        "parameters": parameter_count(gpt.config),
    } | _cost(seconds, read_rows(here / HISTORY, EpochRow)[-1].tokens)


def _cost(seconds: float, tokens: int) -> Row:
    return {"seconds": round(seconds, 1), "tokens": tokens}


def train_stage(sections: dict[str, Any], here: Path) -> tuple[float, GPT]:
    """Run the stage `train` in the folder `here`, which has its tokens, under params.yaml with
    these sections. Return the seconds of the whole process, and the model of its last epoch."""
    parameters = read_yaml(ROOT / "params.yaml")
    YAML(typ="safe").dump(parameters | sections, here / "params.yaml")
    can_check = importlib.util.find_spec("tokenizers")
    program = ["-m", "stages", "train"] if can_check else ["-c", WITHOUT_CHECK]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *program],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise UserError(f"TokenMill's train failed: {done.stderr.strip().splitlines()[-1]}")
    run = here / "models" / "gpt"
    return seconds, load_model(run / f"epoch-{read_manifest(run).epochs}")


@torch.no_grad()
def mean_loss(
    logits: Callable[[Tensor, Tensor], Tensor],
    model: nn.Module,
    val: np.ndarray,
    context: int,
    batch: int = 64,
) -> float:
    """Mean cross-entropy over every sequence of the validation text, in nats, in float32, the same
    for both."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    torch.set_float32_matmul_precision("highest")
    ids = torch.from_numpy(val.astype(np.int64)).to(device)
    count = (len(ids) - 1) // context
    inputs, targets = (
        ids[shift : shift + count * context].view(count, context) for shift in (0, 1)
    )
    total = 0.0
    for x, y in zip(inputs.split(batch), targets.split(batch), strict=True):
        total += F.cross_entropy(
            logits(x, y).flatten(0, 1).float(), y.flatten(), reduction="sum"
        ).item()
    return total / (count * context)
