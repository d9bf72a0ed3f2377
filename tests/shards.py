"""Clean documents as the stage `clean` writes them."""

from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl

from tokenmill.data import shard_writer
from tokenmill.data.report import Tally
from tokenmill.executors.threads import ThreadExecutor
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
    ):
        tables = (
            (
                executor.start(pl.DataFrame.clone, documents)[0],
                documents["text"].str.len_bytes().to_numpy(),
                np.ones(len(documents), dtype=np.bool_),
            )
            for documents in batches
        )
        shard_writer.write_shards(tables, folder, tally, executor=executor)
    return tally
