"""How far one driver of a cluster can drive: `python -m bench.data.driver RAW`.

`clean` is driven once for each number of simulated nodes, whose tasks sleep and give what real ones
gave for the text at RAW. So all of the driver's work is real, and the nodes cost this machine
nothing. What passes through a real driver's network: bench/data/nodes.py.
"""

import contextlib
import itertools
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from bench.program import ROOT, command_line
from stages.clean import Params
from tokenmill.core.params import load
from tokenmill.data.chunks import Chunk, Planner
from tokenmill.data.clean import Summary, clean_chunk, cleaned_chunks
from tokenmill.data.dedup import Hashes
from tokenmill.data.duplicates import new_documents
from tokenmill.data.params import CleanParams
from tokenmill.data.readers import FORMATS
from tokenmill.data.report import Tally
from tokenmill.data.shard_writer import write_shards
from tokenmill.data.sources import find_sources
from tokenmill.executors.base import Executor, Task
from tokenmill.executors.ray_cluster import RayExecutor
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.progress import Progress
from tokenmill.stage import report_errors

NODES = (1, 10, 20, 50)

CHUNKS = 200
"""Chunks of 16 MiB of the simulation: 3.4 GB."""

CHUNK_SECONDS = 0.3
"""How long a node sleeps for a chunk: about as long as a core cleans one."""

SHARD_SECONDS = 0.15
"""How long a node sleeps for a shard, which has about two chunks, when it writes it."""


Values: TypeAlias = tuple[Summary, pl.DataFrame, Hashes]
"""What `clean_chunk` gives."""


class SleepingExecutor(ThreadExecutor):
    """Nodes of one core that sleep instead of cleaning and writing."""

    task_bytes = RayExecutor.task_bytes

    def __init__(self, nodes: int, cleaned: list[Values]):
        """Nodes that give the values `cleaned` in turn, as if they were new documents."""
        super().__init__(threads=nodes)
        self._cleaned = cleaned
        self._numbers = itertools.count()

    def start(
        self, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> tuple[Task, ...]:
        """See `Executor.start`."""
        if not isinstance(function, partial):  # it looks at duplicates
            return super().start(function, *arguments, **options)
        if function.func is clean_chunk:
            return super().start(self._clean, next(self._numbers), **options)
        return super().start(self._write, *arguments)

    def _clean(self, number: int) -> Values:
        time.sleep(CHUNK_SECONDS)
        summary, documents, keys = self._cleaned[number % len(self._cleaned)]
        return summary, documents, keys ^ np.uint64(number)

    @staticmethod
    def _write(path: Path, *_: Any) -> tuple[int, None, Tally]:
        time.sleep(SHARD_SECONDS)
        path.touch()
        return 0, None, Tally()


def drive(executor: Executor, chunk: Chunk, params: CleanParams, folder: Path) -> None:
    """Clean CHUNKS chunks, as the stage `clean` does."""
    tally = Tally()
    size = CHUNKS * chunk.size
    with (
        Progress("clean", size) as progress,
        contextlib.closing(
            cleaned_chunks([chunk] * CHUNKS, params, executor, tally, progress)
        ) as cleaned,
    ):
        new = new_documents(cleaned, params, executor, tally, size)
        write_shards(new, folder, tally, executor=executor)


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__, figures=False)
    parser.add_argument("raw", type=Path, help="a file or a folder of text, as data.raw")
    options = parser.parse_args()
    report_errors(lambda: run(options.raw))


def run(raw: Path) -> None:
    """A row of the table for each number of nodes."""
    params = load(Params, ROOT / "params.yaml").clean
    print("| nodes | seconds | times one |\n| --- | --- | --- |")
    planner = Planner(params, lambda _: None, SleepingExecutor.task_bytes)
    chunks = list(planner.chunks(find_sources(raw, FORMATS).sources))
    cleaned = [clean_chunk(chunk, params) for chunk in chunks[:5]]
    first = 0.0
    for nodes in NODES:
        with (
            tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as folder,
            SleepingExecutor(nodes, cleaned) as executor,
        ):
            start = time.perf_counter()
            drive(executor, chunks[0], params, Path(folder))
            seconds = time.perf_counter() - start
        first = first or seconds
        print(f"| {nodes} | {seconds:.1f} | {first / seconds:.1f} |")


if __name__ == "__main__":
    main()
