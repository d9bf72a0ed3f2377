"""From packed to plain token files, at the speed of the disk, and nothing of it believed unseen.

What comes out has the size and the SHA-256 that the metadata promises, or there is no folder at all.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import zstandard

from tokenmill.core import files
from tokenmill.core.errors import UserError
from tokenmill.core.executor import ahead
from tokenmill.core.token_file import (
    SPLITS,
    SplitMetadata,
    TokenMetadata,
    packed_file,
    read_metadata,
    token_file,
    write_metadata,
)
from tokenmill.display.progress import Progress

BLOCK = 1 << 20
"""Compressed bytes read at a time: about three times as many come out."""


def unpack(packed: Path, out: Path) -> TokenMetadata:
    """Write out/train.bin, out/val.bin and out/metadata.json; `out` is replaced whole, or left as it was.

    Raises:
        UserError: a packed file is missing, damaged, cut short, or not the one of the metadata; the disk is full.
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
            source = packed_file(packed, split)
            size = metadata.split(split).tokens * itemsize
            _unpack_file(source, token_file(folder, split), size, metadata.split(split), progress)
        write_metadata(folder, metadata)
    return metadata


def _unpack_file(source: Path, target: Path, size: int, promised: SplitMetadata, progress: Progress) -> None:
    """Decompress `source` into `target`; refuse everything but `size` bytes with the promised hash."""
    sha256, written = hashlib.sha256(), 0
    with target.open("wb") as file:
        for block in ahead(_hashed(ahead(_blocks(source)), sha256)):
            written += len(block)
            if written > size:
                break
            file.write(block)
            progress.advance(len(block))
    if written != size:
        raise _damaged(
            source, f"holds {'more' if written > size else 'fewer'} than the {size:,} bytes that metadata.json promises"
        )
    if sha256.hexdigest() != promised.sha256:
        raise _damaged(source, "does not hold the tokens that metadata.json promises (SHA-256)")


def _hashed(blocks: Iterable[bytes], sha256: "hashlib._Hash") -> Iterator[bytes]:
    for block in blocks:
        sha256.update(block)
        yield block


def _blocks(source: Path) -> Iterator[bytes]:
    """The decompressed content of exactly one frame, checked by zstd's own checksum."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    try:
        with source.open("rb") as file:
            while not frame.eof and (block := file.read(BLOCK)):
                yield frame.decompress(block)
            if not frame.eof:
                raise _damaged(source, "is cut short")
            if frame.unused_data or file.read(1):
                raise _damaged(source, "goes on after its end")
    except FileNotFoundError:
        raise UserError(f"{source} is missing; run `dvc pull` or `dvc repro tokenize`.") from None
    except zstandard.ZstdError as error:
        raise _damaged(source, f"cannot be decompressed ({error})") from None


def _damaged(source: Path, what: str) -> UserError:
    return UserError(f"{source} {what}; make it again with `dvc repro -f tokenize`, or get it with `dvc pull`.")
