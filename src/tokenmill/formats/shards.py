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
from tokenmill.core.files import naming, open_regular
from tokenmill.core.paths import way_out
from tokenmill.formats.chat_columns import text_bytes

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

ZSTD_LEVEL = 1

DIGITS = 5
"""The fewest digits of the number in a shard's name."""


def write_shard(path: Path, documents: Sequence[pl.DataFrame], row_group_bytes: int) -> None:
    """Write documents as one shard, with their totals in its footer."""
    shard = pl.concat(documents, rechunk=True)
    size = text_bytes(shard["text"])
    rows = min(max(1, len(shard) * row_group_bytes // max(1, size)), ROW_GROUP_ROWS)
    footer = {
        "format": CLEAN_FORMAT,
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
    """UTF-8 bytes of text, without the marks of turns."""
    chars: int
    """Unicode code points, marks included."""


def shard_file(folder: Path, number: int) -> Path:
    """The shard with this number; they count from 0."""
    return folder / f"part-{number:0{DIGITS}}.parquet"


def shards(folder: Path) -> list[Path]:
    """The shards of a folder in the order of their numbers, which from 100,000 shards on is not the
    order of their names.

    Raises:
        UserError: there are none, or one between them is missing.
    """
    found = sorted(folder.glob("part-*.parquet"), key=_number)
    if not found:
        raise UserError(f"{folder} holds no part-*.parquet; run `dvc repro clean`.")
    for number, shard in enumerate(found):
        if shard != (wanted := shard_file(folder, number)):
            raise UserError(
                f"{wanted} is missing; get it with `dvc pull`, or run `dvc repro clean`."
            )
    return found


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
        yield from (group.read(columns) for group in row_groups(shard))


@dataclass(frozen=True)
class RowGroup:
    """Consecutive documents of a shard, about 16 MiB of text, that are read together."""

    shard: Path
    start: int
    rows: int

    def read(self, columns: Sequence[str] = ("text",)) -> pl.DataFrame:
        """Read these columns of the documents."""
        table = pl.scan_parquet(self.shard, glob=False).select(columns)
        return table.slice(self.start, self.rows).collect()


def row_groups(shard: Path) -> list[RowGroup]:
    """The row groups of one shard, in order; only its footer is read."""
    footer = _read_footer(shard)
    rows = footer["row_group_rows"]
    return [RowGroup(shard, start, rows) for start in range(0, footer["documents"], rows)]


def totals(folder: Path) -> Totals:
    """Documents, bytes and characters of a folder, from the shards' footers: no text is read."""
    footers = [_read_footer(shard) for shard in shards(folder)]
    return Totals(
        *(sum(footer[key] for footer in footers) for key in ("documents", "bytes", "chars"))
    )


def _read_footer(shard: Path) -> dict[str, int]:
    open_regular(shard).close()  # polars would wait for somebody to write into a pipe
    try:
        metadata = pl.read_parquet_metadata(shard)
        names = ("format", "documents", "bytes", "chars", "row_group_rows")
        footer = {name: int(metadata[name]) for name in names}
        if footer["format"] != CLEAN_FORMAT:
            raise ValueError
        return footer
    except (KeyError, ValueError, pl.exceptions.PolarsError):
        raise UserError(f"{shard} is not a shard of the stage clean; {way_out(shard)}.") from None
