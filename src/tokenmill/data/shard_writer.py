"""Write clean documents, as they come, to shards of equal size."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from tokenmill.executor import ThreadExecutor
from tokenmill.formats.shards import ROW_GROUP_BYTES, SHARD_BYTES, shard_file, write_shard


def write_shards(
    folder: Path,
    batches: Iterable[pl.DataFrame],
    *,
    shard_bytes: int = SHARD_BYTES,
    row_group_bytes: int = ROW_GROUP_BYTES,
) -> None:
    """Write documents with the columns of SCHEMA to part-00000.parquet, part-00001.parquet, … in
    `folder`.

    The shards do not depend on how the documents are grouped into batches. A thread compresses a
    full shard while the next one fills, so at most two are in memory.
    """

    def write(numbered: tuple[int, list[pl.DataFrame]]) -> None:
        number, documents = numbered
        write_shard(shard_file(folder, number), documents, row_group_bytes)

    for _ in ThreadExecutor(threads=1, waiting=1).map(
        write, enumerate(_grouped(batches, shard_bytes))
    ):
        pass


def _grouped(batches: Iterable[pl.DataFrame], shard_bytes: int) -> Iterator[list[pl.DataFrame]]:
    pending: list[pl.DataFrame] = []
    held = 0
    for batch in batches:
        documents = batch
        while len(documents):
            sizes = documents["text"].str.len_bytes().cast(pl.Int64).cum_sum().to_numpy()
            taken = min(int(np.searchsorted(sizes, shard_bytes - held)) + 1, len(documents))
            pending.append(documents[:taken])
            held += int(sizes[taken - 1])
            documents = documents[taken:]
            if held >= shard_bytes:
                yield pending
                pending = []
                held = 0
    if pending:
        yield pending
