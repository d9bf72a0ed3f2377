"""Packed shards back to token files that training reads anywhere, verified; it takes seconds.

Each shard is unpacked by itself, into its place in the .bin of either split. What is in a store is
fetched then, so the disk holds one such shard for each thread. Where the training tokens do not fit
the disk, they are compressed again, in blocks that can be read one by one.
"""

import hashlib
import io
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import zstandard

from tokenmill.core import files
from tokenmill.core.errors import UserError
from tokenmill.core.paths import damaged
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.formats.store import Manifest, ShardFile, read_manifest
from tokenmill.formats.token_blocks import Block, compressed_blocks, write_blocks
from tokenmill.formats.token_file import (
    DTYPE,
    SPLITS,
    PackedShard,
    Part,
    Split,
    TokenMetadata,
    compressed_file,
    packed_dtype,
    read_metadata,
    token_file,
    unpacked_bytes,
    write_metadata,
)
from tokenmill.progress import Progress

UNPACKED_IDS = 1 << 18
"""Ids that are decompressed at a time, so that a damaged file takes no more memory than a good
one."""

COMPRESS = ", or set runtime.token_placement to compressed (less than half of that),"
"""What else helps against a full disk."""


def unpack(packed: Path, out: Path, *, compressed: bool = False) -> TokenMetadata:
    """Write out/train.bin, out/val.bin and out/metadata.json. The folder `out` is replaced whole,
    or stays as it was.

    Args:
        packed: what `tokenize` wrote.
        out: the folder to write.
        compressed: write out/train.zst, which has compressed blocks, instead of out/train.bin.
    """
    metadata = read_metadata(packed)
    manifest = read_manifest(packed)
    train, val = metadata.train.file_bytes, metadata.val.file_bytes
    needed = unpacked_bytes(train, val, metadata.vocab_size, compressed=compressed)
    with (
        files.enough_room(out, lambda: needed, or_else="" if compressed else COMPRESS),
        files.write_directory(out) as folder,
        Progress("unpack", train + val) as progress,
        ThreadExecutor() as executor,
    ):
        plain: tuple[Split, ...] = ("val",) if compressed else SPLITS
        for split in plain:
            token_file(folder, split).touch()
        dtype = packed_dtype(metadata.vocab_size)
        work = partial(_unpack_shard, folder=folder, dtype=dtype, plain=plain)
        blocks = _blocks(executor.map(work, _places(metadata, packed, manifest)), progress)
        if compressed:
            with compressed_file(folder).open("wb") as file:
                write_blocks(file, blocks)
        else:
            deque(blocks, maxlen=0)  # there are none: the tasks write to the .bin
        write_metadata(folder, metadata)
    return metadata


def _blocks(
    unpacked: Iterable[tuple[int, list[Block]]], progress: Progress
) -> Generator[Block, None, None]:
    """The blocks of all shards, in their order, while the progress is shown."""
    for size, blocks in unpacked:
        progress.advance(size)
        yield from blocks


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


def _unpack_shard(
    place: Place, *, folder: Path, dtype: str, plain: Collection[Split]
) -> tuple[int, list[Block]]:
    """Decompress a shard into its places. Any size or hash but the expected one is refused.

    Returns:
        The bytes of its ids as int32; in blocks, those of the split that is not among `plain`.
    """
    source = place.file.path
    parts = [place.shard.part(split) for split in SPLITS]
    blocks: list[Block] = []
    try:
        with (
            place.file.local() as path,
            files.open_regular(path) as file,
            zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as stream,
            io.BufferedReader(stream) as content,
        ):
            for split, part, start in zip(SPLITS, parts, place.starts, strict=True):
                found = _ids(content, part, dtype)
                if split in plain:
                    _write(found, token_file(folder, split), start)
                else:
                    blocks = [block for ids in found for block in compressed_blocks(ids, dtype)]
            if content.read(1):
                raise ValueError("holds more than the tokens that metadata.json records")
    except FileNotFoundError:
        raise UserError(f"{source} is missing; run `dvc pull` or `dvc repro tokenize`.") from None
    except zstandard.ZstdError as error:
        raise damaged(source, f"cannot be decompressed ({error})") from None
    except ValueError as error:
        raise damaged(source, str(error)) from None
    return sum(part.tokens for part in parts) * np.dtype(DTYPE).itemsize, blocks


def _ids(content: IO[bytes], part: Part, dtype: str) -> Iterator[np.ndarray]:
    """The next ids of a shard, in arrays of int32.

    Raises:
        ValueError: at the end, if they are fewer than the part has, or others.
    """
    width = np.dtype(dtype).itemsize
    sha256 = hashlib.sha256()
    left = part.tokens
    while left:
        block = content.read(min(left, UNPACKED_IDS) * width)
        if len(block) < min(left, UNPACKED_IDS) * width:
            raise ValueError("holds fewer than the tokens that metadata.json records")
        ids = np.frombuffer(block, dtype=dtype).astype(DTYPE)
        sha256.update(ids.data)
        yield ids
        left -= len(ids)
    if sha256.hexdigest() != part.sha256:
        raise ValueError("does not hold the tokens that metadata.json records (SHA-256)")


def _write(found: Iterable[np.ndarray], target: Path, start: int) -> None:
    """Write ids into their place in a .bin."""
    with target.open("r+b") as file:
        file.seek(start * np.dtype(DTYPE).itemsize)
        for ids in found:
            file.write(ids.data)
