"""Steps of GPT-2 124M on all GPUs of this machine, by DDP and by FSDP, beside one of them.

`python -m bench.training.parallel` gives each process the same number of sequences, so that more
GPUs take larger steps; compiled, in bfloat16, with AdamW. On a machine with one GPU there is
nothing to compare. With `--tiny` two processes make some steps of next to nothing, on a CPU.
"""

import argparse
import multiprocessing
import os
import socket
import time
from multiprocessing.queues import SimpleQueue

import numpy as np
import torch

from bench.harness import for_long_runs, here, tokenmill_steps, train_params, wait
from bench.program import RowFile, command_line
from bench.training.peers import model_124m
from tokenmill.model.device import choose_compute, configure_process
from tokenmill.stage import report_errors
from tokenmill.training.compile import Compilation
from tokenmill.training.distributed import process_group

WARM_UP = 4
STEPS = 20


def work(  # noqa: PLR0917 (a process takes no keywords)
    rank: int, count: int, port: int, parallel: str, tiny: bool, found: "SimpleQueue[float | str]"
) -> None:
    """Be process `rank` of `count`; the first one gives the seconds of a step, or all an error."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    config, sequences = model_124m("gpt2", tiny=tiny)
    steps = 2 if tiny else STEPS
    device = here()
    try:
        with process_group(device, shards=parallel == "fsdp") as group:
            compute = choose_compute(device.type, "float32" if tiny else "bfloat16")  # type: ignore[arg-type]
            configure_process(compute)
            go = tokenmill_steps(
                config,
                train_params(optimizer="adamw", batch_size=count * sequences, learning_rate=1e-4),
                compute,
                np.zeros(4 * count * sequences * config.context_length + 1),
                compilation=Compilation(False, "tiny") if tiny else for_long_runs(device),
                group=group,
            )
            go(WARM_UP)
            wait()
            began = time.perf_counter()
            go(steps)
            wait()
            if group.is_main:
                found.put((time.perf_counter() - began) / steps)
    except Exception as error:  # whatever it is, the other ways go on
        found.put(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")


def seconds(count: int, parallel: str, *, tiny: bool) -> float | str:
    """Seconds of a step of `count` processes, or why there are none."""
    context = multiprocessing.get_context("spawn")
    found: SimpleQueue[float | str] = context.SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    processes = [
        context.Process(target=work, args=(rank, count, port, parallel, tiny, found))
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return "its processes ended" if found.empty() else found.get()


def run(options: argparse.Namespace) -> None:
    """Measure, print."""
    file = RowFile(options.json)
    count = 2 if options.tiny else torch.cuda.device_count()
    config, sequences = model_124m("gpt2", tiny=options.tiny)
    ways = [(1, "ddp")] + [(count, parallel) for parallel in ("ddp", "fsdp") if count > 1]
    alone = 0.0
    for processes, parallel in ways:
        row = {"processes": processes, "parallel": parallel if processes > 1 else "none"}
        took = seconds(processes, parallel, tiny=options.tiny)
        if isinstance(took, str):
            row["left out"] = took
        else:
            rate = processes * sequences * config.context_length / took
            alone = alone or rate
            row |= {
                "ms": round(took * 1e3, 2),
                "tokens/s": round(rate),
                "times one": round(rate / alone, 2),
            }
        file.show(row)


def main() -> None:
    """Read the arguments."""
    options = command_line(__doc__, tiny="two processes, next to nothing").parse_args()
    report_errors(lambda: run(options))


if __name__ == "__main__":
    main()
