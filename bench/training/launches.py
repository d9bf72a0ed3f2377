"""Steps of the default model, which a GPU computes faster than the host launches them.

`python -m bench.training.launches` times them uncompiled, compiled, and recorded as one CUDA graph
(`runtime.compile`: off, on, reduce-overhead), each in a process of its own, one at a time. On a CPU
there is nothing to record, and with `--tiny` nothing is compiled.
"""

import argparse
from functools import partial

import numpy as np

from bench.harness import (
    Contender,
    RowFile,
    Steps,
    compute_for,
    here,
    measure,
    print_times,
    section,
    tiny_command,
    tokenmill_steps,
    train_params,
)
from tokenmill.model.config import ModelConfig
from tokenmill.training.compile import Compilation

VOCABULARY = 4096
SEQUENCES = 2000

WAYS = {
    "off": Compilation(False, "asked for"),
    "on": Compilation(True, "asked for"),
    "reduce-overhead": Compilation(True, "asked for", recorded=True),
}


def steps_of(way: str) -> Steps:
    """The default model's steps on random tokens."""
    config = ModelConfig.model_validate(section("model") | {"vocab_size": VOCABULARY})
    ids = np.random.default_rng(0).integers(VOCABULARY, size=SEQUENCES * config.context_length + 1)
    train = train_params(learning_rate=4e-3)
    return tokenmill_steps(config, train, compute_for(train.precision), ids, compilation=WAYS[way])


def run(options: argparse.Namespace) -> None:
    """Measure, print."""
    on_gpu = here().type == "cuda"
    ways = [way for way in WAYS if way == "off" or (not options.tiny and (on_gpu or way == "on"))]
    contenders = {way: Contender(partial(steps_of, way), is_stage=True) for way in ways}
    rounds, steps = (1, 2) if options.tiny else (5, 100)
    timed = measure(contenders, rounds=rounds, steps=steps, at_a_time=1)
    print_times(timed, "compile", RowFile(options.json))


def main() -> None:
    """Read the arguments."""
    tiny_command(__doc__, "a few steps, nothing compiled", run)


if __name__ == "__main__":
    main()
