"""Whether `torch.compile` pays for itself in a run: by rule, from the run's parameters alone.

Not by a stopwatch: compiled steps round differently, and what a clock decides differs from one start to the next, so a
run that goes on, or is done again, would not give the same bytes, as is promised on a CPU. docs/decisions.md has the
figures behind the rule.
"""

import os
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import torch
from torch import nn

from tokenmill.core.errors import UserError
from tokenmill.model.size import flops_per_token
from tokenmill.training.schedule import Workload

CPU_TFLOP = 100
"""Of an epoch, from which a CPU does: about half an hour on two cores, for one or two minutes of compiling
and 12 to 35 % shorter steps. Of an epoch, not of the run: more epochs must go on with the same bits."""


GPU_STEPS = 2000
"""Of a run, from which a GPU does; assumed, not measured: first step and gain of the ladder's rung `compiled` tell."""


ON_CPU = {"cpp_wrapper": True}
"""Kernels are called from C++ instead of Python: 3 to 4 % of a small model's step; compiling takes as long."""


SHAPES = 64
"""That a run may meet; from its ninth on PyTorch would go on without compiling."""


Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Compilation:
    """Whether a run's model is compiled."""

    on: bool
    why: str

    def __str__(self) -> str:
        """The choice and its reason."""
        return f"{'on' if self.on else 'off'}: {self.why}"

    def of(self, model: Model) -> Model:
        """The model, compiled or as it is.

        Every shape gets code of its own (an epoch's last step is short): code for any shape, which PyTorch makes once
        it has seen two, would let a step's rounding depend on the shapes that came before it. On a CPU embeddings are
        left to PyTorch, which adds their gradient up in a fixed order; threads of compiled code would add when they
        come to it, and no two runs would give the same bytes.
        """
        if not self.on:
            return model
        if next(model.parameters()).device.type != "cpu":
            return torch.compile(model, dynamic=False, recompile_limit=SHAPES)  # type: ignore[return-value]
        gpt = next(part for part in model.modules() if hasattr(part, "forward_embedded"))
        gpt.forward_embedded = torch.compile(
            gpt.forward_embedded, dynamic=False, recompile_limit=SHAPES, options=ON_CPU
        )  # type: ignore[call-overload]
        return model


def choose_compilation(wish: Literal["auto", "on", "off"], device: torch.device, work: Workload) -> Compilation:
    """What `runtime.compile` comes to for this work on this device.

    Raises:
        UserError: it is `on`, and what it needs is not there.
    """
    missing = lacks(device) if wish != "off" else None
    if wish == "on" and missing:
        raise UserError(f"runtime.compile (on) needs {missing}, which is not there; install it, or set it to auto.")
    if wish != "auto":
        return Compilation(wish == "on", "runtime.compile says so")
    if device.type not in {"cpu", "cuda"}:
        return Compilation(False, "not tried on this kind of device")
    if missing:
        return Compilation(False, f"it needs {missing}, which is not there")
    if device.type == "cpu":
        teraflop = work.tokens_per_epoch * flops_per_token(work.config) / 1e12
        return Compilation(
            teraflop >= CPU_TFLOP,
            f"an epoch takes {teraflop:,.1f} TFLOP, and compiling for a CPU pays from {CPU_TFLOP} on",
        )
    return Compilation(
        work.steps >= GPU_STEPS, f"the run has {work.steps:,} steps, and compiling pays from {GPU_STEPS:,} on"
    )


def lacks(device: torch.device) -> str | None:
    """What `torch.compile` needs for this device and does not find."""
    language, variable, usual = (
        ("C++", "CXX", ("g++", "clang++")) if device.type == "cpu" else ("C", "CC", ("gcc", "cc"))
    )
    if not any(shutil.which(name) for name in (os.environ.get(variable), *usual) if name):
        return f"a {language} compiler ({usual[0]})"
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return None if headers.exists() else f"Python's headers ({headers})"
