"""One job in a process of its own: `python -m bench.data.jobs NAME START`, run in a project's
folder.

A job is prepared (imports, reading what it works on) and then done; only the second part is timed.
The last line of output is JSON: `seconds` of the work, `start_up` seconds before it since START
(Unix time), `cpu` seconds of the process and `work_cpu` of the work alone, `peak_mib` of memory,
and what the job says about itself; or `missing`, what it needs and is not installed. A project has
params.yaml and data/ as the pipeline has them, and excerpts of its corpus (corpus.py).
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from bench.machine import peak_bytes

Facts: TypeAlias = dict[str, Any]
"""What a job says about itself; `bytes`, if it did not work on the whole corpus."""

Work: TypeAlias = Callable[[], Facts]
"""The timed part of a job."""

STAGES = ("clean", "tokenizer", "tokenize", "unpack")


def prepared(name: str) -> Work:
    """The work of the job `name`, ready to be done; a stage imports what a stage imports, and no
    more."""
    if name in ("sample", *STAGES, "train"):
        main = importlib.import_module(f"stages.{name}").main
        return lambda: main() or {}
    jobs = (
        importlib.import_module("bench.data.parts").JOBS
        | importlib.import_module("bench.data.limits").JOBS
        | importlib.import_module("bench.data.peers").JOBS
        | importlib.import_module("bench.index").JOBS
    )
    return jobs[name]()


def main(name: str, start: float) -> None:
    """Prepare and do one job, and say so."""
    try:
        work = prepared(name)
    except ImportError as error:
        print(json.dumps({"missing": error.name or str(error)}))
        return
    start_up = time.time() - start
    before = time.process_time()
    began = time.perf_counter()
    facts = work()
    figures = {
        "seconds": time.perf_counter() - began,
        "start_up": start_up,
        "work_cpu": time.process_time() - before,
        "cpu": sum(os.times()[:4]),
        "peak_mib": peak_bytes() / 2**20,
    }
    print(json.dumps(figures | facts))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("error: give a job and its START: python -m bench.data.jobs clean $(date +%s)")
    main(sys.argv[1], float(sys.argv[2]))
