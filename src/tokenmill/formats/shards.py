"""The clean documents: parquet shards in a folder or a store, written once and read in constant
memory.

Columns: `text`; `source`, the file it came from relative to data.raw; `id`, the XXH3 64-bit hash of
the text's UTF-8. Where a shard and its row groups end depends on the text alone: the same documents
are the same bytes.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from tokenmill.core.errors import UserError
from tokenmill.core.files import expect, open_regular, write_beside
from tokenmill.core.paths import damaged
from tokenmill.formats.chat_columns import text_bytes
from tokenmill.formats.store import ShardFile, StoredShard, read_manifest

SCHEMA = {"text": pl.String, "source": pl.String, "id": pl.UInt64}

CLEAN_FORMAT = 1
"""The version of the format. It is raised when the same raw text and parameters would give other
clean text or shards. Readers refuse every other version."""

SHARD_BYTES = 32 << 20
"""UTF-8 bytes of text at which a shard ends."""

ROW_GROUP_BYTES = 16 << 20
"""UTF-8 bytes of text in a row group, on average in its shard."""

ROW_GROUP_ROWS = 1 << 17
"""The most rows that a row group has."""

MOST_ROW_GROUPS = 1 << 16
"""More row groups than a shard ever has; a footer that promises more is wrong."""

ZSTD_LEVEL = 1

NO_SHARD = "is not a shard of the stage clean"
"""What is said of a file that is none."""

UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises of a damaged file."""

DIGITS = 5
"""The fewest digits of the number in a shard's name."""


class Footer(NamedTuple):
    """What a shard says of itself."""

    format: int
    documents: int
    bytes: int
    """UTF-8 bytes of text, without the marks of turns."""
    chars: int
    """Unicode code points, marks included."""
    row_group_rows: int


def write_shard(path: Path, shard: pl.DataFrame) -> dict[str, int]:
    """Write documents as one shard, with their totals in its footer, and return these. It appears
    whole or not at all, in a folder that must be there.

    Raises:
        UserError: the folder is not there.
    """
    expect(path.parent)
    size = text_bytes(shard["text"])
    rows = min(max(1, len(shard) * ROW_GROUP_BYTES // max(1, size)), ROW_GROUP_ROWS)
    chars = int(shard["text"].str.len_chars().sum())
    footer = Footer(CLEAN_FORMAT, len(shard), size, chars, rows)._asdict()
    with write_beside(path) as beside:
        shard.write_parquet(
            beside,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            statistics=False,
            row_group_size=rows,
            metadata={key: str(value) for key, value in footer.items()},
        )
    return footer


@dataclass(frozen=True)
class Totals:
    """How much text a folder holds: the sums over its shards."""

    documents: int
    bytes: int
    chars: int


def shard_file(folder: Path, number: int) -> Path:
    """The shard with this number; they count from 0."""
    return folder / f"part-{number:0{DIGITS}}.parquet"


def shards(folder: Path) -> list[ShardFile]:
    """The shards of a folder in the order of their numbers, which from 100,000 shards on is not the
    order of their names.

    Raises:
        UserError: there are none, or one between them is missing.
    """
    if manifest := read_manifest(folder):
        stored = enumerate(manifest.shards)
        return [ShardFile(shard_file(folder, i), manifest.store, one) for i, one in stored]
    found = sorted(folder.glob("part-*.parquet"), key=_number)
    if not found:
        raise UserError(f"{folder} holds no part-*.parquet; run `dvc repro clean`.")
    for number, shard in enumerate(found):
        if shard != (wanted := shard_file(folder, number)):
            raise UserError(
                f"{wanted} is missing; get it with `dvc pull`, or run `dvc repro clean`."
            )
    return [ShardFile(shard) for shard in found]


def _number(shard: Path) -> int:
    digits = shard.stem.removeprefix("part-")
    return int(digits) if digits.isdecimal() else -1


def batches(folder: Path, columns: Sequence[str] = ("text",)) -> Iterator[pl.DataFrame]:
    """The documents of a folder, in order, a row group (about 16 MiB of text) at a time.

    Example:
        for batch in batches(Path("data/clean"), ("text", "id")):
            print(len(batch), batch["text"][0])
    """
    for shard in shards(folder):
        yield from documents(shard, columns)


def documents(shard: ShardFile, columns: Sequence[str] = ("text",)) -> Iterator[pl.DataFrame]:
    """The documents of one shard, in order, a row group at a time. It is fetched once."""
    return read_groups(row_groups(shard), columns)


@dataclass(frozen=True)
class RowGroup:
    """Consecutive documents of a shard, about 16 MiB of text, that are read together."""

    shard: ShardFile
    start: int
    rows: int


def read_groups(
    groups: Iterable[RowGroup], columns: Sequence[str] = ("text",)
) -> Iterator[pl.DataFrame]:
    """These columns of row groups, one group after the other. A shard of which several follow each
    other is fetched once.

    Raises:
        UserError: a file does not hold what `clean` writes.
    """
    for shard, some in itertools.groupby(groups, lambda group: group.shard):
        with shard.local() as path:
            yield from (_read(path, group, columns) for group in some)


def _read(path: Path, group: RowGroup, columns: Sequence[str]) -> pl.DataFrame:
    schema = pl.Schema({column: SCHEMA[column] for column in columns})
    table = pl.scan_parquet(path, glob=False).select(columns)
    try:
        found = table.slice(group.start, group.rows).collect()
    except UNREADABLE:
        raise damaged(path, NO_SHARD) from None
    if len(found) != group.rows or found.schema != schema or any(found.null_count().row(0)):
        raise damaged(path, NO_SHARD)
    return found


def row_groups(shard: ShardFile) -> list[RowGroup]:
    """The row groups of one shard, in order; only its footer is read."""
    footer = read_footer(shard)
    rows = footer.row_group_rows
    starts = range(0, footer.documents, rows)
    return [RowGroup(shard, start, min(rows, footer.documents - start)) for start in starts]


def totals(folder: Path) -> Totals:
    """Documents, bytes and characters of a folder, from the shards' footers: no text is read."""
    footers = [read_footer(shard) for shard in shards(folder)]
    return Totals(
        documents=sum(footer.documents for footer in footers),
        bytes=sum(footer.bytes for footer in footers),
        chars=sum(footer.chars for footer in footers),
    )


def read_footer(shard: ShardFile) -> Footer:
    """What a shard says of itself.

    Raises:
        UserError: it is no shard, or one of another version.
    """
    try:
        if isinstance(shard.stored, StoredShard):
            footer = shard.stored.footer
        else:
            open_regular(shard.path).close()  # polars would wait for somebody to write into a pipe
            footer = pl.read_parquet_metadata(shard.path)
        found = Footer(**{name: int(footer[name]) for name in Footer._fields})
    except (KeyError, ValueError, *UNREADABLE):
        raise damaged(shard.path, NO_SHARD) from None
    rows = found.row_group_rows
    fits = 1 <= rows <= ROW_GROUP_ROWS and 1 <= found.documents <= MOST_ROW_GROUPS * rows
    if found.format != CLEAN_FORMAT or not fits:
        raise damaged(shard.path, NO_SHARD)
    return found
