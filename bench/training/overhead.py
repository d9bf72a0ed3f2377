"""What a training costs beside its training: `python -m bench.training.overhead`.

For the default run's model and for a larger one (6 layers, 384 wide, context 256), of a step: the
share outside the model's forward and backward passes, clipping and update, and in it the gathering
of its batch. Of a checkpoint: the seconds for which the training waits for it, those by which the
steps are slower beside which it is written, and what both come to where one is written every
minute. The real trainer runs, on random tokens, with clocks around these parts.
"""

import contextlib
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any
from unittest import mock

from bench.harness import wait
from bench.program import RowFile, command_line
from bench.training.stage_run import train_here
from tokenmill.model.gpt2 import GPT2
from tokenmill.model.modern import NanoChat
from tokenmill.model.sequences import Sequences
from tokenmill.stage import report_errors
from tokenmill.training import loop
from tokenmill.training.checkpoints.background import AsyncCheckpointer
from tokenmill.training.optimizer import Optimizer

EVERY = 60.0
"""Seconds between two checkpoints by default."""

LARGER = {"n_layer": 6, "n_head": 6, "n_embd": 384, "context_length": 256}

TINY = {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 16}

CHECKPOINTS = 8

Row = dict[str, Any]


def main() -> None:
    """Run both models, and print."""
    parser = command_line(__doc__, tiny="a few steps of next to nothing")
    parser.add_argument("--steps", type=int, default=80)
    options = parser.parse_args()
    models = {"tiny": TINY} if options.tiny else {"default": {}, "larger": LARGER}
    steps = 2 * CHECKPOINTS if options.tiny else options.steps
    report_errors(lambda: run(models, steps, RowFile(options.json)))


def run(models: dict[str, dict[str, int]], steps: int, file: RowFile) -> None:
    """A row for each model, each in a process of its own, as a stage has it."""
    for name, changes in models.items():
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            row = {"model": name} | process.submit(measure, changes, steps).result()
        file.show(row)


def measure(changes: dict[str, int], steps: int) -> Row:
    """Train so many steps with some checkpoints on the way."""
    stepping = Clock()
    logging = Clock()
    saving = Clock()
    writing = Clock()
    # A validation computes and gathers, too
    inside = Clock(during=stepping)
    gathering = Clock(during=stepping)
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.ExitStack() as stack,
    ):
        for clock, owner, name in (
            (inside, GPT2, "forward"),
            (inside, NanoChat, "forward"),
            (inside, Optimizer, "backward"),
            (inside, Optimizer, "step"),
            (gathering, Sequences, "gather"),
            (stepping, loop, "train_step"),
            (logging, loop, "log"),
            (saving, AsyncCheckpointer, "save"),
            (writing, AsyncCheckpointer, "_write"),
        ):
            stack.enter_context(clock.around(owner, name))
        train_here(changes, steps=steps, epochs=1, every_steps=max(1, steps // CHECKPOINTS))
    whole = stepping.seconds + logging.seconds
    waited = statistics.median(end - begin for begin, end in saving.spans)
    slower = statistics.median(_slower(stepping.spans, writing.spans))
    return {
        "steps": steps,
        "ms a step": round(whole / steps * 1e3, 1),
        "outside the model": f"{1 - inside.seconds / whole:.2%}",
        "gathering": f"{gathering.seconds / whole:.2%}",
        "a checkpoint is waited for, s": round(waited, 4),
        "slows steps by, s": round(slower, 3),
        "one a minute": f"{(waited + slower) / EVERY:.2%}",
    }


Span = tuple[float, float]


def _slower(steps: list[Span], writes: list[Span]) -> list[float]:
    """Seconds that the steps beside each write took more than the median of those beside none."""
    beside = [
        [step for step in steps if step[0] < end and step[1] > begin] for begin, end in writes
    ]
    alone = statistics.median(end - begin for begin, end in set(steps).difference(*beside))
    return [sum(end - begin - alone for begin, end in those) for those in beside if those]


class Clock:
    """Notes when some methods ran."""

    def __init__(self, during: "Clock | None" = None) -> None:
        """Count all calls, or only those made while another clock runs."""
        self.spans: list[Span] = []
        self._runs = False
        self._during = during

    @property
    def seconds(self) -> float:
        """All together."""
        return sum(end - begin for begin, end in self.spans)

    def around(self, owner: object, name: str) -> contextlib.AbstractContextManager[object]:
        """Time every call of a method, as long as the context lasts."""
        method: Callable[..., object] = getattr(owner, name)

        def timed(*arguments: object, **keywords: object) -> object:
            with self._time():
                return method(*arguments, **keywords)

        return mock.patch.object(owner, name, timed)

    @contextlib.contextmanager
    def _time(self) -> Iterator[None]:
        wait()
        self._runs = True
        began = time.perf_counter()
        yield
        wait()
        self._runs = False
        if self._during is None or self._during._runs:  # noqa: SLF001 (another of this class)
            self.spans.append((began, time.perf_counter()))


if __name__ == "__main__":
    main()
