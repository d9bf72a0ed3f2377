"""Which files are read, in which order, and their bytes, decompressed as they stream.

The order is that of the bytes of the relative POSIX paths, so that the result does not depend on
the disk. A block never exceeds a few MiB, whatever an archive claims to hold.
"""

import bz2
import codecs
import contextlib
import gzip
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zstandard

from tokenmill.core.errors import UserError
from tokenmill.core.files import refuse_special
from tokenmill.core.paths import PROMPTS_FILE, SAMPLE
from tokenmill.words.cleaning import skipped_in_words

COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")

BLOCK_BYTES = 1 << 20
"""Bytes read at a time."""

MAX_RECORD_BYTES = 32 << 20
"""A longer record is not held in memory: a line of JSON is dropped as `invalid_record`, a row of
parquet with such a cell as `no_text`, and a file of another format is refused."""

ZSTD_INPUT = 1 << 9
"""Compressed bytes given to zstd at a time: at its highest ratio (4 bytes for a block of 128 KiB)
that is 16 MiB."""

HELD_OUT_NAME = re.compile(r"(?i)(^|[-_./ ])test($|[-_./ ])")
"""The path of a file that holds test text, as data sets are published: `test.txt`,
`wiki.test.raw.txt`, `test-00000-of-00001.parquet`, `test/7.txt`."""

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""What stands in place of a large file where git has no LFS; about 130 bytes."""

Advance = Callable[[int], object]
"""Is told the number of bytes read from disk since the last call."""


@dataclass(frozen=True)
class Source:
    """One file to read."""

    path: Path
    name: str
    """Its path relative to data.raw, in POSIX form (the file's own name if data.raw is a file)."""
    format: str
    """The ending that tells the format, such as `.txt`."""
    compression: str | None
    """One of COMPRESSIONS, or None."""
    size: int
    """Bytes on disk."""
    modified: int
    """When it was last written, in nanoseconds; with the size, this shows whether it changes while
    it is read."""
    encoding: str = "auto"
    """The encoding of its text, by Python's own name for it; `auto` finds it."""


@dataclass(frozen=True)
class Found:
    """The files at data.raw."""

    sources: list[Source]
    skipped: dict[str, int]
    """Number of files of unknown format, by extension."""
    held_out: list[Source]
    """Test files, which are not read, in the same order."""


def find_sources(
    raw: Path, formats: Collection[str], encoding: str = "auto", parameter: str = "data.raw"
) -> Found:
    """The files at `raw` of the given formats (endings such as `.txt`), in bytewise order of their
    names.

    In a folder, those named as test text (HELD_OUT_NAME) are held out, unless all are named so.
    `parameter` is the one that names `raw`, for errors.

    Raises:
        UserError: nothing is there, nothing that can be read, or something that must not be.
    """
    readable = f"{' '.join(formats)}, each also {' '.join(COMPRESSIONS)}"
    if not raw.exists():
        own = (
            f"set {parameter} to a file or folder of {readable} "
            "(`tokenmill fetch` brings an address here)"
        )
        way_out = "`dvc repro sample` writes it" if raw.match(SAMPLE.as_posix()) else own
        raise UserError(f"{parameter} ({raw}) does not exist; {way_out}.")
    encoding = encoding if encoding == "auto" else codecs.lookup(encoding).name
    sources: list[Source] = []
    skipped: Counter[str] = Counter()
    for path in _files(raw) if raw.is_dir() else [raw]:
        if path == raw / PROMPTS_FILE:
            continue
        source = _source(path, raw, formats, encoding, parameter)
        if source is None:
            skipped[path.suffix.lower()] += 1
        else:
            sources.append(source)
    if not sources and not raw.is_dir():
        raise UserError(
            f"{parameter} ({raw}) has no known format; give a file that ends in {readable}."
        )
    if not sources:
        holds = skipped_in_words(dict(sorted(skipped.items()))) or "no files"
        raise UserError(
            f"{parameter} ({raw}) holds no text ({holds}); put files there that end in {readable}."
        )
    sources.sort(key=lambda source: os.fsencode(source.name))
    read = [source for source in sources if not HELD_OUT_NAME.search(source.name)]
    held_out = [source for source in sources if HELD_OUT_NAME.search(source.name)]
    if not read:
        read = sources
        held_out = []
    return Found(read, dict(sorted(skipped.items())), held_out)


def _files(folder: Path) -> Iterator[Path]:
    """Every file under `folder` that is not hidden; links to folders are not followed."""

    def refuse(error: OSError) -> None:
        raise UserError(
            f"{error.filename} cannot be listed ({error.strerror}); fix its permissions."
        )

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def _source(
    path: Path, raw: Path, formats: Collection[str], encoding: str, parameter: str
) -> Source | None:
    """The file as a source, or None if its name ends in no known format."""
    endings = [suffix.lower() for suffix in path.suffixes]
    compression = endings.pop() if endings and endings[-1] in COMPRESSIONS else None
    if not endings or endings[-1] not in formats:
        return None
    refuse_special(path, raw, parameter)
    name = path.name if path == raw else path.relative_to(raw).as_posix()
    printable = os.fsencode(name).decode("utf-8", "replace")  # a Linux name may be any bytes
    status = path.stat()
    if status.st_size < 1024 and _begins_with(path, LFS_POINTER):
        raise UserError(
            f"{path} is a pointer of Git LFS, not the text; `git lfs pull` in its repository, or "
            "`tokenmill fetch`."
        )
    return Source(
        path, printable, endings[-1], compression, status.st_size, status.st_mtime_ns, encoding
    )


def _begins_with(path: Path, start: bytes) -> bool:
    """Whether a file begins with these bytes; False if it cannot be read, which is refused
    later."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(len(start)) == start
    return False


def blocks(source: Source, advance: Advance = lambda _: None) -> Iterator[bytes]:
    """The decompressed bytes of `source`.

    Raises:
        UserError: the file cannot be opened, is a broken archive, or changed while it was read.
    """
    try:
        with opened(source) as file:
            yield from _decompressed(source, file, advance)
    except (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        # Of the disk; those of gzip and bz2 have no number
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UserError(
            f"{source.path} is a broken archive ({error or 'it ends too early'}); get it again."
        ) from None


@contextlib.contextmanager
def opened(source: Source) -> Iterator[IO[bytes]]:
    """The file of `source`, open for reading.

    Raises:
        UserError: the file may not be read, or it is another one by the end of the block.
    """
    try:
        with source.path.open("rb") as file:
            yield file
            now = os.fstat(file.fileno())
    except PermissionError:
        raise not_permitted(source) from None
    except FileNotFoundError:
        raise UserError(
            f"{source.path} disappeared while it was read; run `dvc repro` again."
        ) from None
    if (now.st_size, now.st_mtime_ns) != (source.size, source.modified):
        raise UserError(
            f"{source.path} changed while it was read; run `dvc repro` again when it is complete."
        )


def not_permitted(source: Source) -> UserError:
    """The error for a file that may not be read."""
    return UserError(
        f"{source.path} may not be read (permission denied); chmod +r it or move it away."
    )


def _decompressed(source: Source, file: IO[bytes], advance: Advance) -> Iterator[bytes]:
    if source.compression == ".zst":
        yield from _zstd(file, advance)
        return
    stream: Any = file
    if source.compression is not None:
        stream = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}[source.compression](file)
    reported = 0
    while block := stream.read(BLOCK_BYTES):
        position = file.tell()
        advance(position - reported)
        reported = position
        yield block


def _zstd(file: IO[bytes], advance: Advance) -> Iterator[bytes]:
    """One frame after the other. (The library's stream_reader takes a truncated frame for a
    complete one.)"""
    frame: Any = None
    pending: list[bytes] = []
    size = 0
    while data := file.read(ZSTD_INPUT):
        advance(len(data))
        while data:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            block = frame.decompress(data)
            data = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
            pending.append(block)
            size += len(block)
            if size >= BLOCK_BYTES:
                yield b"".join(pending)
                pending = []
                size = 0
    if frame is not None:
        raise EOFError
    yield b"".join(pending)
