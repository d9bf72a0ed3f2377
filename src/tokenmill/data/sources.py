"""Which files are read, in which order, and their bytes, decompressed as they stream.

The order is that of the relative POSIX paths' bytes, so that the result does not depend on the disk.
A block never exceeds a few MiB whatever an archive claims to hold.
"""

import bz2
import contextlib
import gzip
import lzma
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zstandard

from tokenmill.core.errors import UserError

FORMATS = (".txt", ".md", ".jsonl", ".json", ".csv", ".parquet")


COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")


READABLE = f"{' '.join(FORMATS)}, each also {' '.join(COMPRESSIONS)}"


BLOCK = 1 << 20
"""Bytes read at a time."""


ZSTD_INPUT = 1 << 9
"""Compressed bytes given to zstd at a time: at its highest ratio (4 bytes for a block of 128 KiB) that is 16 MiB."""


_BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError)


@dataclass(frozen=True)
class Source:
    """One file to read."""

    path: Path
    name: str
    """Its path relative to data.raw, in POSIX form (the file's own name where data.raw is a file)."""
    format: str
    """One of FORMATS."""
    compression: str | None
    """One of COMPRESSIONS, or None."""
    size: int
    """Bytes on disk."""
    modified: int
    """When it was last written, in nanoseconds; with the size, what it is known by while it is read."""

    def refuse_changed(self, file: IO[bytes]) -> None:
        """Raise if the open file is no longer the one that was found."""
        now = os.fstat(file.fileno())
        if (now.st_size, now.st_mtime_ns) != (self.size, self.modified):
            raise UserError(f"{self.path} changed while it was read; run `dvc repro` again when it is complete.")


@dataclass(frozen=True)
class Found:
    """What `find` found."""

    sources: list[Source]
    skipped: dict[str, int]
    """Number of files of unknown format, by extension."""


def find(raw: Path) -> Found:
    """The readable files at `raw`, in bytewise order of their names.

    Raises:
        UserError: nothing is there, or nothing that can be read.
    """
    if raw.is_file():
        source = _source(raw, raw.name)
        if source is None:
            raise UserError(f"data.raw ({raw}) has no known format; give a file that ends in {READABLE}.")
        return Found([source], {})
    if not raw.is_dir():
        raise UserError(f"data.raw ({raw}) does not exist; set data.raw to a file or folder of {READABLE}.")
    sources: list[Source] = []
    skipped: Counter[str] = Counter()
    for path in _files(raw):
        source = _source(path, path.relative_to(raw).as_posix())
        if source is None:
            skipped[path.suffix.lower() or "(none)"] += 1
        else:
            sources.append(source)
    if not sources:
        holds = ", ".join(f"{count} {ending}" for ending, count in sorted(skipped.items())) or "no files"
        raise UserError(f"data.raw ({raw}) holds no text ({holds}); put files there that end in {READABLE}.")
    sources.sort(key=lambda source: os.fsencode(source.name))
    return Found(sources, dict(sorted(skipped.items())))


def _files(folder: Path) -> Iterator[Path]:
    """Every file under `folder` that is not hidden; links to files are followed, links to folders are not."""

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be listed ({error.strerror}); mend its permissions.")

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _source(path: Path, name: str) -> Source | None:
    """The file as a source, or None if its name ends in nothing known."""
    endings = [suffix.lower() for suffix in path.suffixes]
    compression = endings.pop() if endings and endings[-1] in COMPRESSIONS else None
    if not endings or endings[-1] not in FORMATS:
        return None
    status = path.stat()
    return Source(path, _printable(name), endings[-1], compression, status.st_size, status.st_mtime_ns)


def _printable(name: str) -> str:
    """A file name as valid Unicode: a Linux name may be any bytes."""
    return os.fsencode(name).decode("utf-8", "replace")


def blocks(source: Source, advance: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    """The decompressed bytes of `source`; `advance` hears of the bytes read from disk.

    Raises:
        UserError: the file cannot be opened, is a broken archive, or changed while it was read.
    """
    try:
        with opened(source) as file:
            yield from _decompressed(source, file, advance)
    except _BROKEN as error:
        raise UserError(f"{source.path} is a broken archive ({error or 'it ends too early'}); get it again.") from None


@contextlib.contextmanager
def opened(source: Source) -> Iterator[IO[bytes]]:
    """The file of `source`, open for reading, which must be the one that was found when the block ends, too.

    Raises:
        UserError: it may not be read, or changed.
    """
    try:
        with source.path.open("rb") as file:
            yield file
            source.refuse_changed(file)
    except PermissionError:
        raise UserError(f"{source.path} may not be read (permission denied); chmod +r it or move it away.") from None
    except FileNotFoundError:
        raise UserError(f"{source.path} went away while it was read; run `dvc repro` again.") from None


def _decompressed(source: Source, file: IO[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    if source.compression == ".zst":
        yield from _zstd(file, advance)
        return
    stream: Any = file
    if source.compression is not None:
        stream = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}[source.compression](file)
    told = 0
    while block := _read(stream):
        position = file.tell()
        advance(position - told)
        told = position
        yield block


def _read(stream: IO[bytes]) -> bytes:
    try:
        return stream.read(BLOCK)
    except OSError as error:
        if error.errno is None:  # bz2 says "Invalid data stream" with an OSError
            raise EOFError(str(error)) from None
        raise


def _zstd(file: IO[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    """Frames in turn. (The library's stream_reader takes a truncated frame for a complete one.)"""
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
            if size >= BLOCK:
                yield b"".join(pending)
                pending, size = [], 0
    if frame is not None:
        raise EOFError
    yield b"".join(pending)
