"""The tokens of a split as one row of ids, each document followed by end-of-text.

It is a memory map of its .bin or, where `unpack` compressed the training text, read block by block.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.paths import damaged
from tokenmill.formats.token_blocks import CompressedTokens
from tokenmill.formats.token_file import (
    DTYPE,
    Split,
    compressed_file,
    packed_dtype,
    read_metadata,
    token_file,
)

BLOCK_IDS = 1 << 18
"""Ids that are read, searched or hashed at a time; so many are in a processor's cache."""

Tokens: TypeAlias = np.ndarray | CompressedTokens
"""A row of ids. Either kind has a length, and a slice of either is an array of int32."""


def open_tokens(folder: Path, split: Split) -> Tokens:
    """The tokens of a split, read-only: one row of ids, each document followed by end-of-text.

    The whole file is read once and compared with the metadata: size, SHA-256 and ids. That takes a
    second for a gigabyte of the .bin, and two and a half where it is compressed.

    Args:
        folder: what `unpack` wrote, `data/tokens`.
        split: `train` or `val`.

    Example:
        >>> tokens = open_tokens(Path("data/tokens"), "train")
        >>> sequence = torch.from_numpy(tokens[start : start + context_length + 1].astype(np.int64))
    """
    metadata = read_metadata(folder)
    count = metadata.split(split).tokens
    path = token_file(folder, split)
    compressed = compressed_file(folder)
    tokens: Tokens
    if path.is_file():
        tokens = map_numbers(path, DTYPE, count)
    elif split == "train" and compressed.is_file():
        path = compressed
        tokens = CompressedTokens(path, packed_dtype(metadata.vocab_size), count)
    else:
        raise UserError(f"{path} is missing; run `dvc repro unpack`.")
    start = 0
    for part in (shard.part(split) for shard in metadata.shards):
        blocks = read_blocks(tokens, start, start + part.tokens)
        check_numbers(path, blocks, part.sha256, metadata.vocab_size)
        start += part.tokens
    return tokens


def train_file(folder: Path) -> Path:
    """The file that has the training tokens, in compressed blocks or not."""
    plain = token_file(folder, "train")
    return plain if plain.is_file() else compressed_file(folder)


def read_blocks(ids: Tokens, start: int = 0, stop: int | None = None) -> Iterator[np.ndarray]:
    """The ids from `start` to `stop`, which is their end if it is not given, in blocks of at most
    BLOCK_IDS, each of which is read once."""
    stop = len(ids) if stop is None else stop
    for first in range(start, stop, BLOCK_IDS):
        yield np.array(ids[first : min(first + BLOCK_IDS, stop)])


def document_ends(ids: Tokens, eot_id: int) -> np.ndarray:
    """The position behind the end-of-text of each document; (documents,) int64."""
    found = [
        np.flatnonzero(block == eot_id) + number * BLOCK_IDS
        for number, block in enumerate(read_blocks(ids))
    ]
    return np.concatenate(found) + 1


def map_numbers(path: Path, dtype: str, length: int) -> np.memmap:
    """Map a file of so many numbers, read-only.

    Raises:
        UserError: it has another size.
    """
    size = path.stat().st_size
    if size != length * np.dtype(dtype).itemsize:
        raise damaged(path, f"has {size:,} bytes, not {length:,} numbers of type {dtype}")
    return np.memmap(path, dtype=dtype, mode="r")


def check_numbers(path: Path, blocks: Iterable[np.ndarray], sha256: str, bound: int) -> None:
    """Compare numbers of a file, which come in blocks, with what its metadata says.

    Raises:
        UserError: their SHA-256 is another one, or one is not from 0 to `bound` - 1.
    """
    found = hashlib.sha256()
    least, most = 0, 0
    for block in blocks:
        found.update(block.data)
        least, most = min(least, int(block.min())), max(most, int(block.max()))
    if found.hexdigest() != sha256:
        raise damaged(path, "does not match the SHA-256 in metadata.json")
    if least < 0 or most >= bound:
        raise damaged(path, f"has numbers outside 0 … {bound - 1}")
