"""Small clean corpora, as the stage `clean` leaves them."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import xxhash

from tests.shards import write_shards

PROSE = [
    f"Line {i} of the {word} says that it's number {i * 37 % 101}, and the {word} won't "
    f"repeat.\n\n\n    So it goes:    {word}!\n\n\n    And so on.\t\t\n"
    for i, word in enumerate(
        ["river", "mountain", "Müller", "naïve café", "你好世界", "🙂 face", "x = y + 1"] * 12
    )
]


def write_clean(
    folder: Path,
    texts: Sequence[str],
    *,
    sources: Sequence[str] | None = None,
    shard_bytes: int = 10**6,
    row_group_bytes: int = 10**6,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    ids = pl.Series([xxhash.xxh3_64_intdigest(text.encode()) for text in texts], dtype=pl.UInt64)
    source = sources or ["a.txt"] * len(texts)
    frame = pl.DataFrame({"text": pl.Series(texts, dtype=pl.String), "source": source, "id": ids})
    write_shards(folder, [frame], shard_bytes=shard_bytes, row_group_bytes=row_group_bytes)
    return folder
