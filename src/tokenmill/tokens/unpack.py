"""Packed shards back to plain token files that training can map, verified; it takes seconds.

Each shard is unpacked by itself, into its place in the .bin of either split. What is in a store is
fetched then, so the disk holds one such shard for each thread.
"""

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import zstandard

from tokenmill.core import files
from tokenmill.core.errors import UserError
from tokenmill.core.paths import way_out
from tokenmill.display import Progress
from tokenmill.executor import ThreadExecutor
from tokenmill.formats.store import Manifest, ShardFile, read_manifest
from tokenmill.formats.token_file import (
    DTYPE,
    SPLITS,
    PackedShard,
    Part,
    TokenMetadata,
    packed_dtype,
    read_metadata,
    token_file,
    write_metadata,
)

UNPACKED_IDS = 1 << 18
"""Ids that are decompressed at a time, so that a damaged file takes no more memory than a good
one."""


def unpack(packed: Path, out: Path) -> TokenMetadata:
    """Write out/train.bin, out/val.bin and out/metadata.json. The folder `out` is replaced whole,
    or stays as it was."""
    metadata = read_metadata(packed)
    manifest = read_manifest(packed)
    total = metadata.train.file_bytes + metadata.val.file_bytes
    with (
        files.enough_room(out, lambda: total),
        files.write_directory(out) as folder,
        Progress("unpack", total) as progress,
        ThreadExecutor() as executor,
    ):
        for split in SPLITS:
            token_file(folder, split).touch()
        work = partial(_unpack_shard, folder=folder, dtype=packed_dtype(metadata.vocab_size))
        for size in executor.map(work, _places(metadata, packed, manifest)):
            progress.advance(size)
        write_metadata(folder, metadata)
    return metadata


@dataclass(frozen=True)
class Place:
    """A packed shard, and at which token of each split's .bin it begins."""

    file: ShardFile
    shard: PackedShard
    starts: tuple[int, int]


def _places(metadata: TokenMetadata, packed: Path, manifest: Manifest | None) -> Iterator[Place]:
    starts = (0, 0)
    for shard in metadata.shards:
        path = packed / shard.name
        file = ShardFile(path, manifest.store, shard) if manifest else ShardFile(path)
        yield Place(file, shard, starts)
        starts = (starts[0] + shard.train.tokens, starts[1] + shard.val.tokens)


def _unpack_shard(place: Place, *, folder: Path, dtype: str) -> int:
    """Decompress a shard into its places. Any size or hash but the expected one is refused.

    Returns:
        The number of bytes written.
    """
    source = place.file.path
    parts = [place.shard.part(split) for split in SPLITS]
    try:
        with (
            place.file.local() as path,
            files.open_regular(path) as file,
            zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as stream,
            io.BufferedReader(stream) as content,
        ):
            for split, part, start in zip(SPLITS, parts, place.starts, strict=True):
                _unpack_part(content, part, token_file(folder, split), start, dtype)
            if content.read(1):
                raise ValueError("holds more than the tokens that metadata.json records")
    except FileNotFoundError:
        raise UserError(f"{source} is missing; run `dvc pull` or `dvc repro tokenize`.") from None
    except zstandard.ZstdError as error:
        raise _damaged(source, f"cannot be decompressed ({error})") from None
    except ValueError as error:
        raise _damaged(source, str(error)) from None
    return sum(part.tokens for part in parts) * np.dtype(DTYPE).itemsize


def _unpack_part(content: IO[bytes], part: Part, target: Path, start: int, dtype: str) -> None:
    """Write the next ids of a shard into its place in a .bin, as int32.

    Raises:
        ValueError: they are fewer than the part has, or others.
    """
    width = np.dtype(dtype).itemsize
    sha256 = hashlib.sha256()
    left = part.tokens
    with target.open("r+b") as file:
        file.seek(start * np.dtype(DTYPE).itemsize)
        while left:
            block = content.read(min(left, UNPACKED_IDS) * width)
            if len(block) < min(left, UNPACKED_IDS) * width:
                raise ValueError("holds fewer than the tokens that metadata.json records")
            ids = np.frombuffer(block, dtype=dtype).astype(DTYPE)
            sha256.update(ids.data)
            file.write(ids.data)
            left -= len(ids)
    if sha256.hexdigest() != part.sha256:
        raise ValueError("does not hold the tokens that metadata.json records (SHA-256)")


def _damaged(source: Path, what: str) -> UserError:
    return UserError(f"{source} {what}; {way_out(source)}.")
