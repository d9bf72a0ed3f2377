"""What passes through the driver, and how far it can drive: `python -m bench.data.driver RAW`.

First `clean` and `tokenize` run on the text at RAW in threads. For each the table has the bytes
that came to the driver, pickled as a cluster would send them, as a share of the text, and the
processor seconds of the driver's thread for a gigabyte of text. Then `clean` is driven once for
each number of simulated nodes, whose tasks sleep and give what real ones gave. So all of the
driver's work is real, and the nodes cost this machine nothing.
"""

import contextlib
import dataclasses
import itertools
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench.data.measure import ROOT
from stages.clean import Params
from tokenmill.core.params import Section, load
from tokenmill.data.chunks import Chunk, Planner
from tokenmill.data.clean import Duplicates, Summary, clean, clean_chunk, summaries
from tokenmill.data.params import CleanParams
from tokenmill.data.readers import FORMATS
from tokenmill.data.report import Tally
from tokenmill.data.shard_writer import ShardWriter
from tokenmill.data.sources import find_sources
from tokenmill.display import Progress
from tokenmill.executor import Executor, Task, ThreadExecutor
from tokenmill.formats.shards import totals
from tokenmill.tokens.pack import pack
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer

NODES = (1, 10, 20, 50)

CHUNKS = 400
"""Chunks of 8 MiB of the simulation: 3.4 GB."""

CHUNK_SECONDS = 0.15
"""How long a node sleeps for a chunk: about as long as a core cleans one. A shard, which has about
four chunks, is written in the same time."""


class Tokens(Section, extra="ignore"):
    """The sections that `tokenize` and `tokenizer` read."""

    tokenizer: TokenizerParams
    tokenize: TokenizeParams


class CountingExecutor(ThreadExecutor):
    """Threads, and the bytes that the driver fetches from them."""

    fetched = 0
    counting_seconds = 0.0

    def result(self, task: Task) -> Any:
        """See `Executor.result`."""
        value = super().result(task)
        if threading.current_thread() is threading.main_thread():
            start = time.thread_time()
            self.fetched += len(pickle.dumps(value, protocol=5))
            self.counting_seconds += time.thread_time() - start
        return value


class SleepingExecutor(ThreadExecutor):
    """Nodes of one core that sleep instead of cleaning and writing."""

    def __init__(self, nodes: int, cleaned: list[tuple[Summary, pl.DataFrame]]):
        """Nodes that give the values `cleaned` in turn, as if they were new documents."""
        super().__init__(threads=nodes)
        self._cleaned = cleaned
        self._numbers = itertools.count()

    def start(
        self, function: Callable[..., Any], *arguments: Any, values: int = 1
    ) -> tuple[Task, ...]:
        """See `Executor.start`."""
        if getattr(function, "func", None) is clean_chunk:
            return super().start(self._clean, next(self._numbers), values=values)
        return super().start(self._write, *arguments)

    def _clean(self, number: int) -> tuple[Summary, pl.DataFrame]:
        time.sleep(CHUNK_SECONDS)
        summary, documents = self._cleaned[number % len(self._cleaned)]
        return dataclasses.replace(summary, ids=summary.ids ^ np.uint64(number)), documents

    @staticmethod
    def _write(path: Path, *_: Any) -> tuple[int, Tally]:
        time.sleep(CHUNK_SECONDS)
        path.touch()
        return 0, Tally()


def drive(executor: Executor, chunk: Chunk, params: CleanParams, folder: Path) -> None:
    """Clean CHUNKS chunks, as the stage `clean` does."""
    tally = Tally()
    duplicates = Duplicates(params, executor, tally)
    with (
        Progress("clean", CHUNKS * chunk.size) as progress,
        ShardWriter(executor, folder, tally) as writer,
        contextlib.closing(
            summaries([chunk] * CHUNKS, params, executor, tally, progress)
        ) as cleaned,
    ):
        for summary, documents in cleaned:
            rows = duplicates.new_rows(summary, documents)
            writer.add(documents, summary.lengths, rows)
        writer.finish()


def traffic(name: str, text: int, executor: CountingExecutor, work: Callable[[], object]) -> None:
    """Print a stage's row."""
    start = time.thread_time()
    work()
    spent = time.thread_time() - start - executor.counting_seconds
    print(f"| {name} | {executor.fetched / text:.2%} | {spent / text * 1e9:.2f} |")


def main(raw: Path) -> None:
    """Print both tables."""
    params = load(Params, ROOT / "params.yaml").clean
    tokens = load(Tokens, ROOT / "params.yaml")
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as name:
        folder = Path(name)
        size = sum(path.stat().st_size for path in [raw, *raw.rglob("*")] if path.is_file())
        print("\n| stage | bytes to the driver | its CPU s a GB |\n| --- | --- | --- |")
        with CountingExecutor(threads=2) as executor:
            out = folder / "clean"
            traffic(
                "clean",
                size,
                executor,
                lambda: clean(raw=raw, out=out, params=params, executor=executor),
            )
        tokenizer = folder / "tokenizer.json"
        wanted = tokens.tokenizer.model_copy(update={"sample_bytes": 4_000_000})
        train_tokenizer(folder / "clean", tokenizer, wanted)
        with CountingExecutor(threads=2) as executor:
            place = {"executor": executor, "results": folder / "results"}
            traffic(
                "tokenize",
                totals(folder / "clean").bytes,
                executor,
                lambda: pack(
                    folder / "clean", tokenizer, folder / "packed", tokens.tokenize, **place
                ),
            )
        print("\n| nodes | seconds | times one |\n| --- | --- | --- |")
        chunks = list(Planner(params, lambda _: None).chunks(find_sources(raw, FORMATS).sources))
        cleaned = [clean_chunk(chunk, params) for chunk in chunks[:5]]
        first = 0.0
        for nodes in NODES:
            shards = folder / str(nodes)
            shards.mkdir()
            start = time.perf_counter()
            with SleepingExecutor(nodes, cleaned) as executor:
                drive(executor, chunks[0], params, shards)
            seconds = time.perf_counter() - start
            first = first or seconds
            print(f"| {nodes} | {seconds:.1f} | {first / seconds:.1f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
