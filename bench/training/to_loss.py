"""Whole trainings against each other: TokenMill's stage `train` as a process, and one measure of a
model's loss for all."""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ruamel.yaml import YAML
from torch import Tensor, nn
from torch.nn import functional as F

from bench.harness import ROOT
from tokenmill.core.errors import UserError
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import load_model
from tokenmill.model.manifest import read_manifest

WITHOUT_TABLES = """
from unittest import mock
from stages import train
from tokenmill.stage import report_errors, set_wait_policy
set_wait_policy()
with mock.patch("tokenmill.training.run.write_times"), mock.patch("stages.train.write_rows"):
    report_errors(train.main)
"""
"""The stage `train` where pandas, which writes its tables, is not installed."""


def train_stage(sections: dict[str, Any], here: Path) -> tuple[float, GPT]:
    """Run the stage `train` in the folder `here`, which has its tokens, under params.yaml with
    these sections. Return the seconds of the whole process, and the model of its last epoch."""
    parameters = YAML(typ="safe").load(ROOT / "params.yaml")
    YAML(typ="safe").dump(parameters | sections, here / "params.yaml")
    has_tables = importlib.util.find_spec("pandas")
    program = ["-m", "stages", "train"] if has_tables else ["-c", WITHOUT_TABLES]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *program],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
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
