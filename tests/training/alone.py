"""A trainer as a program of its own, which does what the stage `train` does; its one argument is
JSON for `tiny.run`.

More keys: `root` and `tokens`; `room`, the bytes of memory it may take besides what the program
itself takes; and `update_holds`, the micro-batch up to which the optimizer's update finds memory;
`roomy`, the processes of a sharded model in which whole gradients fit, each of which then says how
often it reduced a group of them; and `compiled_as_on_a_gpu`, with which the whole model is compiled
as there, by a backend that needs no compiler, and the process says how many graphs it has.
"""

import atexit
import functools
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import torch

from tests.training import tiny
from tokenmill.stage import report_errors
from tokenmill.training import loop, memory
from tokenmill.training.compile import Compilation
from tokenmill.training.launch import launch_processes
from tokenmill.training.optimizer import Optimizer


def limit_memory(room: int) -> None:
    import resource  # noqa: PLC0415 (Windows has none)

    # What a training imports on its way, so that the limit counts tensors only.
    import dvc.repo  # noqa: F401, PLC0415
    import pandas as pd  # noqa: F401, PLC0415
    import torch._dynamo  # noqa: F401, PLC0415

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + room, hard))


def limit_update(holds: int) -> None:
    step = Optimizer.step
    train_step = loop.train_step
    micro_batch = [0]

    def note(*arguments: Any, **keywords: Any) -> Any:
        micro_batch[0] = keywords["micro_batch"].sequences
        return train_step(*arguments, **keywords)

    def step_or_nothing(self: Optimizer, loss: torch.Tensor) -> torch.Tensor:
        norm = step(self, loss)  # the weights are changed already when memory runs out
        if micro_batch[0] > holds:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return norm

    loop.train_step = note
    Optimizer.step = step_or_nothing  # type: ignore[method-assign]


def limit_gradients(roomy: list[int]) -> None:
    # This takes a second
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group as groups  # noqa: PLC0415

    def counted(*arguments: Any, **keywords: Any) -> Any:
        count[0] += 1
        return reduce(*arguments, **keywords)

    count = [0]
    reduce = groups.foreach_reduce  # pyright: ignore[reportPrivateImportUsage]
    groups.foreach_reduce = counted  # pyright: ignore[reportPrivateImportUsage]
    memory.WHOLE_GRADIENTS_SHARE = int(os.environ["RANK"]) in roomy
    atexit.register(lambda: print(f"{count[0]} reductions", file=sys.stderr))


def compile_as_on_a_gpu() -> None:
    from torch._dynamo.utils import counters  # noqa: PLC0415 (this takes seconds)

    compiled = functools.partial(torch.compile, backend="aot_eager")
    torch.compile = compiled
    Compilation.of = lambda _, model: compiled(model, dynamic=False)  # type: ignore[method-assign]
    atexit.register(lambda: print(f"{counters['stats']['unique_graphs']} graphs", file=sys.stderr))


def main(arguments: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    root = Path(arguments.pop("root"))
    tokens = Path(arguments.pop("tokens"))
    os.chdir(root)
    if room := arguments.pop("room", None):
        limit_memory(room)
    if holds := arguments.pop("update_holds", None):
        limit_update(holds)
    if roomy := arguments.pop("roomy", None):
        limit_gradients(roomy)
    if arguments.pop("compiled_as_on_a_gpu", False):
        compile_as_on_a_gpu()
    runtime = tiny.runtime_params(**arguments.get("runtime", {}))

    def train() -> None:
        if not launch_processes(runtime, step_flops=math.inf):
            tiny.run(tokens, root / "model", **arguments)

    report_errors(train)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
