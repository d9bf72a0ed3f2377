"""Compressed token files back to plain ones that training can map, verified; it takes seconds."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import zstandard

from tokenmill.core import files
from tokenmill.core.errors import UserError
from tokenmill.core.paths import way_out
from tokenmill.display import Progress
from tokenmill.executor import prefetch
from tokenmill.formats.token_file import (
    SPLITS,
    SplitMetadata,
    TokenMetadata,
    packed_file,
    read_metadata,
    token_file,
    write_metadata,
)

UNPACKED_BYTES = 1 << 20
"""Bytes that are decompressed at a time, so that a damaged file takes no more memory than a good
one."""


def unpack(packed: Path, out: Path) -> TokenMetadata:
    """Write out/train.bin, out/val.bin and out/metadata.json. The folder `out` is replaced whole,
    or stays as it was."""
    metadata = read_metadata(packed)
    total = metadata.train.file_bytes + metadata.val.file_bytes
    with (
        files.enough_room(out, lambda: total),
        files.write_directory(out) as folder,
        Progress("unpack", total) as progress,
    ):
        for split in SPLITS:
            _unpack_file(
                packed_file(packed, split),
                token_file(folder, split),
                metadata.split(split),
                progress,
            )
        write_metadata(folder, metadata)
    return metadata


def _unpack_file(source: Path, target: Path, expected: SplitMetadata, progress: Progress) -> None:
    """Decompress `source` into `target`. Any size or hash but the expected one is refused."""
    size = expected.file_bytes
    sha256 = hashlib.sha256()
    written = 0
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
    """The content of the first frame, UNPACKED_BYTES bytes at a time, verified by zstd's own
    checksum."""
    try:
        with source.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            while block := stream.read(UNPACKED_BYTES):
                yield block
    except FileNotFoundError:
        raise UserError(f"{source} is missing; run `dvc pull` or `dvc repro tokenize`.") from None
    except zstandard.ZstdError as error:
        raise _damaged(source, f"cannot be decompressed ({error})") from None


def _damaged(source: Path, what: str) -> UserError:
    return UserError(f"{source} {what}; {way_out(source)}.")
