"""What does not grow with the cores, each part alone on the data of the stages: one thread writes
parquet, finds duplicates, reads a whole file of a format as a task reads a part, hashes for DVC.

Rates count processor seconds, which other programs on the machine change less than the clock.
"""

import csv
import gzip
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
import zstandard

from bench.data.jobs import Facts, Work
from stages.clean import Params
from tokenmill.core import paths
from tokenmill.core.params import load
from tokenmill.data.dedup import Run, add_new
from tokenmill.data.readers import FORMATS, texts
from tokenmill.data.report import Tally
from tokenmill.data.sources import find_sources
from tokenmill.formats.shards import batches, write_shard
from tokenmill.formats.token_blocks import compressor
from tokenmill.formats.token_file import DTYPE, NARROW_DTYPE, token_file

TOKEN_BYTES = 100_000_000
"""Of tokens that are compressed, decompressed and hashed."""

TEXT_BYTES = 50_000_000
"""Of text that each reader gets."""

HASHES = 100_000_000
"""Documents among which duplicates are looked for: 200 GB of text."""

BATCH = 4096
"""Documents of a chunk of 8 MiB."""


def rate(work: Callable[[], object], size: int) -> float:
    """MB of `size` bytes for each processor second of `work`."""
    start = time.process_time()
    work()
    return round(size / 1e6 / max(1e-9, time.process_time() - start), 1)


def limits() -> Work:
    """Every part, in MB/s: of text, or for tokens of .bin."""
    params = load(Params).clean
    frames = list(islice(batches(paths.CLEAN, ("text", "source", "id")), 4))
    ids = np.fromfile(token_file(paths.TOKENS, "train"), dtype=DTYPE, count=TOKEN_BYTES // 4)
    tokens = ids.tobytes()
    text = sum(int(frame["text"].str.len_bytes().sum()) for frame in frames)
    table = pl.concat(frames, rechunk=True)
    rows = table["text"].to_list()

    def work() -> Facts:
        narrow = ids.astype(NARROW_DTYPE).tobytes()
        packed = compressor(NARROW_DTYPE).compress(narrow)
        found: dict[str, float] = {
            "compress tokens": rate(
                lambda: compressor(NARROW_DTYPE).compress(ids.astype(NARROW_DTYPE).data),
                len(tokens),
            ),
            "decompress tokens": rate(
                lambda: zstandard.ZstdDecompressor().decompress(packed, len(narrow)),
                len(tokens),
            ),
            "MD5": rate(lambda: hashlib.md5(tokens, usedforsecurity=False), len(tokens)),
            "read clean text": rate(lambda: list(batches(paths.CLEAN)), _size(paths.CLEAN)),
            "count documents": rate(lambda: [Tally().add_kept(frame) for frame in frames], text),
        }
        with tempfile.TemporaryDirectory() as folder:
            shard = Path(folder, "shard.parquet")
            found["write parquet"] = rate(
                lambda: write_shard(shard, pl.concat(frames, rechunk=True)), text
            )
            for name, size in _files(rows, Path(folder)):
                (source,) = find_sources(Path(folder, name), FORMATS).sources
                read = partial(texts, source, params, Tally())
                found[f"read {name}"] = rate(lambda read=read: sum(1 for _ in read()), size)
        found["find duplicates"] = _duplicates(min(HASHES, _size(paths.CLEAN)))
        return {"bytes": text, "limits": found}

    return work


def _size(clean: Path) -> int:
    return sum(int(frame["text"].str.len_bytes().sum()) for frame in batches(clean))


def _files(rows: list[str], folder: Path) -> Iterator[tuple[str, int]]:
    """Files of the same documents that the caller's thread reads alone, and the bytes of their
    text."""
    some, size = [], 0
    for row in rows:
        some.append(row)
        size += len(row.encode())
        if size >= TEXT_BYTES:
            break
    lines = "".join(json.dumps({"text": row}, ensure_ascii=False) + "\n" for row in some)
    (folder / "a.txt").write_text("\n\n".join(some), encoding="utf-8")
    (folder / "a.json").write_text(json.dumps(some, ensure_ascii=False), encoding="utf-8")
    with (folder / "a.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["text"], *([row] for row in some)])
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 6))
    (folder / "a.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))
    for name in ("a.txt", "a.json", "a.csv", "a.jsonl.gz", "a.jsonl.zst"):
        yield name, size


def _duplicates(known: int) -> float:
    """MB/s of documents of 2 kB, among `known` earlier ones."""
    draws = np.random.default_rng(0)
    earlier = draws.integers(2**64, size=known, dtype=np.uint64)
    runs: list[Run] = []
    add_new(earlier, runs)
    chunks = [draws.integers(2**64, size=BATCH, dtype=np.uint64) for _ in range(500)]
    return rate(lambda: [add_new(chunk, runs) for chunk in chunks], len(chunks) * BATCH * 2000)


JOBS = {"limits": limits}
