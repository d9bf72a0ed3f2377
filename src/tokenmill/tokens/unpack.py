"""Decompress packed token files at the speed of the disk, and verify them.

The output has the size and the SHA-256 that metadata.json records, or it is not written at all.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import zstandard

from tokenmill.core import files
from tokenmill.core.errors import UserError
from tokenmill.core.executor import prefetch
from tokenmill.core.token_file import (
    SPLITS,
    SplitMetadata,
    TokenMetadata,
    packed_file,
    read_metadata,
    token_file,
    write_metadata,
)
from tokenmill.display.terminal import Progress

BLOCK = 1 << 20
"""Bytes that are decompressed at a time: a damaged file takes no more memory than a whole one."""


def unpack(packed: Path, out: Path) -> TokenMetadata:
    """Write out/train.bin, out/val.bin and out/metadata.json; `out` is replaced whole, or left as it was.

    Raises:
        UserError: a packed file is missing, damaged, cut short, or not the one that metadata.json describes; the disk
            is full.
    """
    metadata = read_metadata(packed)
    itemsize = np.dtype(metadata.dtype).itemsize
    total = sum(metadata.split(split).tokens for split in SPLITS) * itemsize
    with (
        files.enough_room(out, lambda: total),
        files.write_directory(out) as folder,
        Progress("unpack", total=total, unit="B") as progress,
    ):
        for split in SPLITS:
            source, expected = packed_file(packed, split), metadata.split(split)
            _unpack_file(source, token_file(folder, split), expected, itemsize, progress)
        write_metadata(folder, metadata)
    return metadata


def _unpack_file(source: Path, target: Path, expected: SplitMetadata, itemsize: int, progress: Progress) -> None:
    """Decompress `source` into `target`; refuse everything but the expected size and hash."""
    size, sha256, written = expected.tokens * itemsize, hashlib.sha256(), 0
    with target.open("wb") as file:
        for block in prefetch(_hash(prefetch(_decompress(source)), sha256)):
            written += len(block)
            if written > size:
                break
            file.write(block)
            progress.advance(len(block))
    if written != size:
        more = "more" if written > size else "fewer"
        raise _damaged(source, f"holds {more} than the {size:,} bytes that metadata.json records")
    if sha256.hexdigest() != expected.sha256:
        raise _damaged(source, "does not hold the tokens that metadata.json records (SHA-256)")


def _hash(blocks: Iterable[bytes], sha256: "hashlib._Hash") -> Iterator[bytes]:
    for block in blocks:
        sha256.update(block)
        yield block


def _decompress(source: Path) -> Iterator[bytes]:
    """The content of the first frame, BLOCK bytes at a time, verified by zstd's own checksum."""
    try:
        with source.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            while block := stream.read(BLOCK):
                yield block
    except FileNotFoundError:
        raise UserError(f"{source} is missing; run `dvc pull` or `dvc repro tokenize`.") from None
    except zstandard.ZstdError as error:
        raise _damaged(source, f"cannot be decompressed ({error})") from None


def _damaged(source: Path, what: str) -> UserError:
    return UserError(f"{source} {what}; make it again with `dvc repro -f tokenize`, or get it with `dvc pull`.")
