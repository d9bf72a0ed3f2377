"""Steps of small models, which a GPU computes faster than the host launches them.

`python -m bench.training.launches` times the default model and nanoGPT's of ten million parameters,
both with Muon: uncompiled, recorded as one CUDA graph, compiled, and both (`runtime.compile`: off,
the choice of auto for a short run, on, reduce-overhead). Each has a process of its own, one at a
time. On a CPU there is nothing to record, and with `--tiny` nothing is compiled.
"""

import argparse
from functools import partial
from typing import Any

import numpy as np

from bench.harness import (
    Steps,
    compute_for,
    here,
    section,
    show_steps,
    tokenmill_steps,
    train_params,
)
from bench.program import RowFile, command_line
from bench.training import nanogpt
from tokenmill.model.config import ModelConfig
from tokenmill.stage import report_errors
from tokenmill.training.compile import Compilation

SEQUENCES = 2000

DEFAULT = "default"
SIZES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    DEFAULT: ({"vocab_size": 4096}, {}),
    "10M": (
        {"vocab_size": 100, "context_length": nanogpt.GPU.context} | nanogpt.GPU.sizes,
        {"batch_size": nanogpt.GPU.batch},
    ),
}
"""What each size changes in the sections `model` and `train`."""

WAYS = {
    "off": Compilation(False, "asked for"),
    "recorded": Compilation(False, "asked for", recorded=True),
    "on": Compilation(True, "asked for"),
    "reduce-overhead": Compilation(True, "asked for", recorded=True),
}


def steps_of(size: str, way: str) -> Steps:
    """The steps of a model on random tokens."""
    model, train = SIZES[size]
    config = ModelConfig.model_validate(section("model") | model)
    ids = np.random.default_rng(0).integers(
        config.vocab_size, size=SEQUENCES * config.context_length + 1
    )
    params = train_params(learning_rate=4e-3, **train)
    return tokenmill_steps(
        config, params, compute_for(params.precision), ids, compilation=WAYS[way]
    )


def run(options: argparse.Namespace) -> None:
    """Measure, print."""
    on_gpu = here().type == "cuda"
    ways = [
        way
        for way, compilation in WAYS.items()
        if (on_gpu or not compilation.recorded) and not (options.tiny and compilation.on)
    ]
    contenders = {
        f"{size}, {way}": partial(steps_of, size, way)
        for size in ([DEFAULT] if options.tiny else SIZES)
        for way in ways
    }
    rounds, steps = (1, 2) if options.tiny else (5, 100)
    show_steps(contenders, "size, compile", RowFile(options.json), rounds=rounds, steps=steps)


def main() -> None:
    """Read the arguments."""
    options = command_line(__doc__, tiny="a few steps, nothing compiled").parse_args()
    report_errors(lambda: run(options))


if __name__ == "__main__":
    main()
