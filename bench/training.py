"""What a training costs beside its training: `python -m bench.training`.

For the default run's model and for a larger one (6 layers, 384 wide, context 256): the share of a step outside the
model's forward and backward passes, clipping and update; the seconds that a checkpoint holds the run up, and their
share where one is written every minute. The real trainer runs, on random tokens, with a clock around those parts.
"""

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from bench.characters import write_tokens
from bench.stepping import section
from tokenmill.model.config import ModelParams
from tokenmill.model.gpt2 import GPT2
from tokenmill.model.modern import Modern
from tokenmill.stage import report_errors
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.saving import Saver
from tokenmill.training.session import train
from tokenmill.training.trainer import Trainer

EVERY = 60.0
"""Seconds between two checkpoints by default."""
LARGER = {"n_layer": 6, "n_head": 6, "n_embd": 384, "context_length": 256}
TINY = {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 16}
Row = dict[str, Any]


def main() -> None:
    """Run both models, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tiny", action="store_true", help="a few steps of next to nothing: only to see that it runs")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    models = {"tiny": TINY} if options.tiny else {"default": {}, "larger": LARGER}
    report_errors(lambda: run(models, 4 if options.tiny else options.steps, options.json))


def run(models: dict[str, dict[str, int]], steps: int, file: Path | None) -> None:
    """A row for each model."""
    rows = [{"model": name} | measure(changes, steps) for name, changes in models.items()]
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    if file:
        file.write_text(json.dumps(rows, indent=2) + "\n")


def measure(changes: dict[str, int], steps: int) -> Row:
    """Train so many steps with five checkpoints on the way."""
    model = ModelParams.model_validate(section("model", **changes))
    whole, saves = Clock(), Clock()
    inside = Clock(during=whole)  # validation goes through the model too
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, {"DVC_ROOT": folder}))
        for owner, name in ((GPT2, "forward"), (Modern, "forward"), (Optimizer, "backward"), (Optimizer, "clip")):
            stack.enter_context(inside.around(owner, name))
        stack.enter_context(inside.around(Optimizer, "step"))
        stack.enter_context(whole.around(Trainer, "_step"))
        stack.enter_context(whole.around(Trainer, "_log_if_due"))
        stack.enter_context(saves.around(Saver, "save"))
        batch = section("train")["batch_size"]
        ids = np.random.default_rng(0).integers(64, size=steps * batch * model.context_length + 1)
        write_tokens(Path(folder) / "tokens", train=ids, val=ids[: 2 * model.context_length], vocabulary=1024)
        checkpoint = section("runtime")["checkpoint"] | {"every_seconds": None, "every_steps": max(1, steps // 5)}
        train(
            model=model,
            train=TrainParams.model_validate(section("train", epochs=1)),
            runtime=RuntimeParams.model_validate(section("runtime", compile="off", checkpoint=checkpoint)),
            tokens=Path(folder) / "tokens",
            output=Path(folder) / "model",
            times=Path(folder) / "timing.csv",
        )
    outside = 1 - sum(inside.took) / sum(whole.took)
    held = statistics.median(saves.took)
    return {
        "steps": steps,
        "ms a step": round(sum(whole.took) / steps * 1e3, 1),
        "outside the model": f"{outside:.2%}",
        "a checkpoint, s": round(held, 3),
        "one a minute": f"{held / EVERY:.2%}",
    }


class Clock:
    """Adds up the time spent in some methods."""

    def __init__(self, during: "Clock | None" = None) -> None:
        """Count all calls, or only those made while another clock runs."""
        self.took: list[float] = []
        self._runs, self._during = False, during

    def around(self, owner: type, name: str) -> contextlib.AbstractContextManager[object]:
        """Time every call of a method, as long as the context lasts."""
        method: Callable[..., object] = getattr(owner, name)

        def timed(*arguments: object, **keywords: object) -> object:
            with self._time():
                return method(*arguments, **keywords)

        return mock.patch.object(owner, name, timed)

    @contextlib.contextmanager
    def _time(self) -> Iterator[None]:
        self._wait()
        self._runs, began = True, time.perf_counter()
        yield
        self._wait()
        self._runs = False
        if self._during is None or self._during._runs:  # noqa: SLF001 (another of this class)
            self.took.append(time.perf_counter() - began)

    @staticmethod
    def _wait() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()


if __name__ == "__main__":
    main()
