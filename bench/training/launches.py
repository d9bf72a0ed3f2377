"""Steps of the default model, which a GPU computes faster than the host launches them.

`python -m bench.training.launches` times them uncompiled, compiled, and recorded as one CUDA graph
(`runtime.compile`: off, on, reduce-overhead), each in a process of its own, one at a time. On a CPU
there is nothing to record, and with `--tiny` nothing is compiled.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np

from bench.harness import (
    Contender,
    RowFile,
    Steps,
    compute_for,
    here,
    measure,
    section,
    tokenmill_steps,
    train_params,
)
from tokenmill.model.config import ModelConfig
from tokenmill.stage import report_errors
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
    file = RowFile(options.json)
    for way, one in timed.items():
        if one.failed:
            print(f"{way:16} left out: {one.failed}")
            file.add({"compile": way, "left out": one.failed})
            continue
        times = round(one.times(timed["off"]), 2)
        print(
            f"{way:16} {one.seconds * 1e3:8.2f} ms a step, {times:5.2f} times the first; its "
            f"first {one.first:.1f} s"
        )
        file.add(
            {
                "compile": way,
                "seconds a step": one.seconds,
                "times the first": times,
                "first step, s": one.first,
            }
        )


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="a few steps, nothing compiled")
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    report_errors(lambda: run(parser.parse_args()))


if __name__ == "__main__":
    main()
