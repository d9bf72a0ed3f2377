"""Clean documents as the stage `clean` writes them."""

from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

import polars as pl

from tokenmill.data import shard_writer
from tokenmill.data.report import Tally
from tokenmill.data.shard_writer import ShardWriter
from tokenmill.executor import ThreadExecutor
from tokenmill.formats import shards


def write_shards(
    folder: Path,
    batches: Iterable[pl.DataFrame],
    *,
    shard_bytes: int = shards.SHARD_BYTES,
    row_group_bytes: int = shards.ROW_GROUP_BYTES,
) -> Tally:
    """Write documents with the columns of SCHEMA to shards in `folder`, and count them."""
    tally = Tally()
    with (
        patch.object(shard_writer, "SHARD_BYTES", shard_bytes),
        patch.object(shards, "ROW_GROUP_BYTES", row_group_bytes),
        ThreadExecutor(threads=1) as executor,
        ShardWriter(executor, folder, tally) as writer,
    ):
        for documents in batches:
            (task,) = executor.start(pl.DataFrame.clone, documents)
            lengths = documents["text"].str.len_bytes().to_numpy()
            writer.add(task, lengths, pl.arange(len(documents), eager=True).to_numpy())
        writer.finish()
    return tally
