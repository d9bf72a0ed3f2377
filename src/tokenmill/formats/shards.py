"""The clean documents on disk: parquet shards, written once and read in constant memory.

Columns: `text`; `source`, the file it came from relative to data.raw; `id`, the XXH3 64-bit hash of
the text's UTF-8. Where a shard and its row groups end depends on the text alone: the same documents
are the same bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tokenmill.core.errors import UserError
from tokenmill.core.files import naming
from tokenmill.formats.chat_columns import text_bytes

SCHEMA = {"text": pl.String, "source": pl.String, "id": pl.UInt64}

SHARD_BYTES = 32 << 20
"""UTF-8 bytes of text at which a shard ends."""

ROW_GROUP_BYTES = 16 << 20
"""UTF-8 bytes of text in a row group, on the average of its shard."""

ROW_GROUP_ROWS = 1 << 17
"""Rows in a row group at most."""

ZSTD_LEVEL = 1


def write_shard(path: Path, documents: Sequence[pl.DataFrame], row_group_bytes: int) -> None:
    """Write documents as one shard, with their totals in its footer."""
    shard = pl.concat(documents, rechunk=True)
    size = text_bytes(shard["text"])
    rows = min(max(1, len(shard) * row_group_bytes // max(1, size)), ROW_GROUP_ROWS)
    footer = {
        "documents": len(shard),
        "bytes": size,
        "chars": int(shard["text"].str.len_chars().sum()),
        "row_group_rows": rows,
    }
    with naming(path):
        shard.write_parquet(
            path,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            statistics=False,
            row_group_size=rows,
            metadata={key: str(value) for key, value in footer.items()},
        )


@dataclass(frozen=True)
class Totals:
    """How much text a folder holds."""

    documents: int
    bytes: int
    """Of UTF-8, without the marks of turns."""
    chars: int
    """Unicode code points, marks included."""


def shards(folder: Path) -> list[Path]:
    """The shards of a folder, in order.

    Raises:
        UserError: there are none.
    """
    found = sorted(folder.glob("part-*.parquet"))
    if not found:
        raise UserError(f"{folder} holds no part-*.parquet; run `dvc repro clean`.")
    return found


def batches(folder: Path, columns: Sequence[str] = ("text",)) -> Iterator[pl.DataFrame]:
    """The documents of a folder, in order, a row group (about 16 MiB of text) at a time.

    Example:
        for batch in batches(Path("data/clean"), ("text", "id")):
            print(len(batch), batch["text"][0])
    """
    for shard in shards(folder):
        yield from shard_batches(shard, columns)


def shard_batches(shard: Path, columns: Sequence[str] = ("text",)) -> Iterator[pl.DataFrame]:
    """The documents of one shard, a row group at a time."""
    footer = _read_footer(shard)
    table = pl.scan_parquet(shard, glob=False).select(columns)
    for start in range(0, footer["documents"], footer["row_group_rows"]):
        yield table.slice(start, footer["row_group_rows"]).collect()


def totals(folder: Path) -> Totals:
    """Documents, bytes and characters of a folder, from the shards' footers: no text is read."""
    footers = [_read_footer(shard) for shard in shards(folder)]
    return Totals(
        *(sum(footer[key] for footer in footers) for key in ("documents", "bytes", "chars"))
    )


def _read_footer(shard: Path) -> dict[str, int]:
    try:
        metadata = pl.read_parquet_metadata(shard)
        return {
            key: int(metadata[key]) for key in ("documents", "bytes", "chars", "row_group_rows")
        }
    except (KeyError, ValueError, pl.exceptions.PolarsError):
        raise UserError(
            f"{shard} is not a shard that `clean` wrote; run `dvc repro --force clean`."
        ) from None
