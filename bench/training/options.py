"""Steps of a model of GPT-2 124M's shape with what TokenMill does not do, until a GPU has shown
that it is faster: one row each, beside the step as it is.

    python -m bench.training.options

  recorded            the whole step as one CUDA graph, so that no kernel waits for its launch
  max-autotune        Inductor times several kernels for each product, and takes the best
  symmetric products  Muon computes X Xᵀ, which is symmetric, from three quarters of its products

The model is `modern`, trained with Muon, 64 sequences of 512 tokens a step, compiled. Each row has
a process of its own, one at a time. On a CPU only the last one can be tried, and nothing is
compiled with `--tiny`.
"""

import argparse
import contextlib
import dataclasses
from functools import partial
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from bench.harness import (
    TURN_SECONDS,
    Steps,
    compute_for,
    for_long_runs,
    here,
    show_steps,
    tokenmill_steps,
    train_params,
)
from bench.program import RowFile, command_line
from bench.training.peers import model_124m
from tokenmill.stage import report_errors
from tokenmill.training import optimizer
from tokenmill.training.compile import Compilation

AS_IT_IS = "as it is"
RECORDED = "recorded"
AUTOTUNE = "max-autotune"
SYMMETRIC = "symmetric products"
ON_GPU = (AS_IT_IS, RECORDED, AUTOTUNE, SYMMETRIC)
ON_CPU = (AS_IT_IS, SYMMETRIC)


def product_with_itself(x_NRC: Tensor) -> Tensor:
    """X Xᵀ of N matrices, (N, R, R), from the products of X's upper and lower rows: the one block
    that would be computed twice is copied."""
    upper, lower = x_NRC.tensor_split(2, dim=1)
    beside = torch.bmm(upper, lower.mT)
    above = torch.cat([torch.bmm(upper, upper.mT), beside], dim=2)
    below = torch.cat([beside.mT, torch.bmm(lower, lower.mT)], dim=2)
    return torch.cat([above, below], dim=1)


def iterated(x_NRC: Tensor) -> Tensor:
    """Muon's iteration with symmetric products: X Xᵀ, and its square."""
    for a, b, c in optimizer.POLAR_EXPRESS:
        square = product_with_itself(x_NRC)
        polynomial = b * square + c * product_with_itself(square)
        x_NRC = torch.baddbmm(x_NRC, polynomial, x_NRC, beta=a)
    return x_NRC


def steps_of(option: str, *, tiny: bool) -> Steps:
    """The steps with one of the options, which holds for the whole process."""
    compute = compute_for("auto")
    stack = contextlib.ExitStack()  # never closed: the process does nothing else
    if option == AUTOTUNE:
        # Two seconds that no other option needs
        from torch._inductor import config as inductor  # noqa: PLC0415

        stack.enter_context(inductor.patch(max_autotune=True))
    elif option == SYMMETRIC:
        stack.enter_context(mock.patch.object(optimizer, "_iterated", iterated))
    config, batch = model_124m("modern", tiny=tiny)
    compilation = Compilation(False, "tiny") if tiny else for_long_runs(compute.device)
    return tokenmill_steps(
        config,
        train_params(optimizer="muon", batch_size=batch, learning_rate=1e-3),
        compute,
        np.zeros(4 * batch * config.context_length + 1),
        compilation=dataclasses.replace(compilation, recorded=option == RECORDED),
    )


def run(options: argparse.Namespace) -> None:
    """Measure, print."""
    names = ON_GPU if here().type == "cuda" else ON_CPU
    contenders = {name: partial(steps_of, name, tiny=options.tiny) for name in names}
    rounds, steps = (1, 2) if options.tiny else (5, 20)
    file = RowFile(options.json)
    show_steps(contenders, "option", file, rounds=rounds, steps=steps, seconds=TURN_SECONDS)


def main() -> None:
    """Read the arguments."""
    options = command_line(__doc__, tiny="a few steps of next to nothing").parse_args()
    report_errors(lambda: run(options))


if __name__ == "__main__":
    main()
