"""Find the files to read, in order, and read their bytes, decompressed as they stream.

The order is that of the bytes of the relative POSIX paths, so the result does not depend on the
disk. A block never exceeds a few MiB, whatever an archive claims to hold.
"""

import bz2
import codecs
import contextlib
import errno
import functools
import gzip
import itertools
import lzma
import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from io import BufferedReader
from operator import attrgetter
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import IO, Any, NamedTuple

import zstandard

from tokenmill.core.errors import UserError
from tokenmill.core.files import changed, refuse_special
from tokenmill.core.params import is_url
from tokenmill.core.paths import PROMPTS_FILE, SAMPLE, VALIDATION_WORDS
from tokenmill.formats.raw_text import Objects, Raw, Version, open_file, version_of
from tokenmill.words.cleaning import skipped_in_words

COMPRESSIONS = {
    ".gz": (b"\x1f\x8b",),
    ".zst": (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"),  # pzstd begins with a frame to skip
    ".bz2": (b"BZh",),
    ".xz": (b"\xfd7zXZ", b"\x5d\0\0"),  # the older .lzma
}
"""How the files of each ending begin."""

_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
"""Matches a byte that no text has."""

ZIP = ".zip"
"""Ends the name of an archive of which every readable file is a source."""

EXPORT = re.compile(r"conversations(-\d+)?\.json")
"""The chats in ChatGPT's export. The others in its folder (shared_conversations.json, …) are about
the account and are skipped."""

ACCOUNT = ("user.json", "chat.html")
"""The files that tell such an export from other archives with a conversations.json."""

ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How a file may be packed there. Of the rarer methods Python takes memory for all that a few KiB
become."""

BLOCK_BYTES = 1 << 20
"""Bytes read at a time."""

MAX_RECORD_BYTES = 32 << 20
"""The most bytes of a record. A longer one is not held in memory: a line of JSON is dropped as
`invalid_record`, a row of parquet with such a cell as `no_text`, and a file of another format is
refused."""

XZ_MEMORY = 160 << 20
"""Bytes that unpacking .xz may take: those of a window of 128 MiB, as for zstd. `xz -9` has one of
64 MiB."""

ZSTD_INPUT = 1 << 9
"""Compressed bytes given to zstd at a time. At its highest ratio (4 bytes for a block of 128 KiB)
they become 16 MiB."""

HELD_OUT_NAME = re.compile(r"(?i)(^|[-_./ ])test($|[-_./ ])")
"""The path of a file that holds test text, as data sets are published: `test.txt`,
`wiki.test.raw.txt`, `test-00000-of-00001.parquet`, `test/7.txt`."""

SPLIT_NAME = re.compile(rf"(?i)(^|[-_./ ])(train|training|{VALIDATION_WORDS})($|[-_./ ])")
"""The path of a file of the other splits of a data set."""

IGNORED = (".git", ".hg", ".dvc")
"""The folders that DVC ignores wherever they are."""

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""The beginning of the text (about 130 bytes) that stands in place of a large file where git has no
LFS."""

POINTER_BYTES = 1024
"""Bytes that such a text has at most."""

BEGINNING = len(LFS_POINTER)
"""Bytes by which a file is told from such a text and from an archive."""

BROKEN = (
    EOFError,
    NotImplementedError,
    OSError,
    UnicodeDecodeError,
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
    zstandard.ZstdError,
)
"""What the libraries raise of an archive that they cannot read."""

Advance = Callable[[int], object]
"""A callback that is told the number of bytes read from disk since its last call."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read. There may be millions of them."""

    location: str
    """The path of the file, or the URL of the object."""
    name: str
    """The file's path relative to data.raw, in POSIX form (the file's own name if data.raw is a
    file)."""
    format: str
    """The ending that tells the format, such as `.txt`."""
    compression: str | None
    """One of COMPRESSIONS, or ZIP; None if the file is not compressed."""
    size: int
    """The size on disk in bytes; for a file in an archive, its own packed size."""
    version: Version
    """That of what is at `location`. It shows whether the file changes while it is read."""
    encoding: str = "auto"
    """The encoding of its text, by Python's own name for it; `auto` finds it."""
    member: int | None = None
    """In an archive, its number there."""
    archive: str = ""
    """The name of the archive that it is in."""

    @property
    def place(self) -> str:
        """What an error about its content calls it: its location, with its path in an archive."""
        inside = self.name.removeprefix(self.archive) if self.archive else ""
        return self.location + inside


class Part(NamedTuple):
    """A file in UTF-8, or a part of it that is read by itself."""

    blocks: Iterable[bytes]
    before: bytes = b""
    """What a reader has to see before the blocks. It has no text."""
    behind: bytes = b""
    first: bool = True
    """Whether it begins the file."""
    is_cut: bool = False
    """Whether its last document goes on behind it, where it is too long for one document."""

    def content(self) -> Iterator[bytes]:
        """All that a reader has to see, in blocks."""
        return filter(None, itertools.chain([self.before], self.blocks, [self.behind]))


@dataclass(frozen=True)
class Found:
    """The files at data.raw."""

    sources: list[Source]
    skipped: dict[str, int]
    """The number of files of unknown format, by extension."""
    held_out: list[Source]
    """Test files, which are not read, in the same order."""


def find_sources(
    raw: Raw, formats: Collection[str], encoding: str = "auto", parameter: str = "data.raw"
) -> Found:
    """The files at `raw` of the given formats (endings such as `.txt`), in bytewise order of their
    names.

    Those named as test text (HELD_OUT_NAME) are held out where others are named as training or
    validation text (SPLIT_NAME); elsewhere the word may be one of a title.
    Errors about `raw` name the parameter `parameter`.
    """
    readable = f"{' '.join(formats)}, each also {' '.join(COMPRESSIONS)}, or in a {ZIP}"
    if not raw.exists():
        raise _missing(raw, parameter, readable)
    encoding = encoding if encoding == "auto" else codecs.lookup(encoding).name
    sources = list[Source]()
    skipped: Counter[str] = Counter()
    for path, name, is_plain in _entries(raw):
        ending = _suffix(name)
        compression = ending if ending in COMPRESSIONS else None
        kind = _suffix(name[: -len(ending)]) if compression else ending
        if kind not in formats and ending != ZIP:
            skipped[ending] += 1
            continue
        version = _listed(path, raw, parameter, is_plain=is_plain)
        source = Source(path, name, kind, compression, version[0], version, encoding)
        sources += _members(source, formats, skipped) if ending == ZIP else [source]
    sources.sort(key=attrgetter("name"))  # code points are in the order of their bytes in UTF-8
    if not sources:
        holds = skipped_in_words(dict(sorted(skipped.items()))) or "no files"
        back = command_of_dvc(raw)
        way_out = f"`{back}` brings it back" if back else f"give files that end in {readable}"
        raise UserError(f"{parameter} ({raw}) holds no text ({holds}); {way_out}.")
    read, held_out = _split(sources)
    return Found(read, dict(sorted(skipped.items())), held_out)


def _refuse_other_names(path: str) -> None:
    """Refuse a name that is not UTF-8, as Linux allows; DVC says then which bytes it cannot encode,
    not of which file."""
    shown = path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")
    if shown != path:
        raise UserError(
            f"{shown} has a name that is not UTF-8, which DVC cannot record; rename it."
        )


def _missing(raw: Raw, parameter: str, readable: str) -> UserError:
    way_out = (
        f"set {parameter} to a file or folder of {readable} "
        "(`tokenmill fetch` brings an address here)"
    )
    if isinstance(raw, Path) and raw.match(SAMPLE.as_posix()):
        way_out = "`dvc repro sample` writes it"
    elif command := command_of_dvc(raw):
        way_out = f"`{command}` brings it"
    return UserError(f"{parameter} ({raw}) does not exist; {way_out}.")


def command_of_dvc(raw: Raw) -> str:
    """The command that brings a text of which DVC tracks files and none is here; empty if there is
    no such command."""
    if not isinstance(raw, Path) or not (tracked := tracked_by_dvc(raw)):
        return ""
    if any(file.is_file() for file in (raw, *raw.rglob("*"))):
        return ""
    pull = f"dvc pull {quote(str(tracked))}"
    # The next `dvc repro` records an emptied folder as such
    return f"git checkout {quote(f'{tracked}.dvc')} && {pull}" if raw.exists() else pull


def tracked_by_dvc(path: Path) -> Path | None:
    """The file, or the folder above it, that `dvc add` tracks; None if DVC does not know it."""
    return next(
        (
            folder
            for folder in (path, *path.parents)
            if folder.name and folder.with_name(f"{folder.name}.dvc").exists()
        ),
        None,
    )


def _split(sources: list[Source]) -> tuple[list[Source], list[Source]]:
    """The files that are read, and those that are held out."""
    read, held_out = list[Source](), list[Source]()
    for source in sources:
        (held_out if HELD_OUT_NAME.search(source.name) else read).append(source)
    if held_out and any(SPLIT_NAME.search(source.name) for source in read):
        return read, held_out
    return sources, []


def _entries(raw: Raw) -> Iterable[tuple[str, str, bool]]:
    """The path or URL of every file or link at `raw` that is not hidden, the path relative to
    `raw`, and whether it is surely a regular file."""
    if not raw.is_dir():
        return [(str(raw), raw.name, False)]
    return _objects(raw) if isinstance(raw, Objects) else _files(raw)


def _objects(raw: Objects) -> Iterator[tuple[str, str, bool]]:
    for url in raw.versions:
        name = url.removeprefix(f"{raw}/")
        if name != PROMPTS_FILE and not any(part.startswith(".") for part in name.split("/")):
            yield url, name, True


def _files(raw: Path) -> Iterator[tuple[str, str, bool]]:
    waiting = [(str(raw), "", False)]
    while waiting:
        folder, name, is_hidden = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            if is_hidden:  # DVC leaves it out
                continue
            raise UserError(
                f"{folder} cannot be listed ({error.strerror}); fix its permissions."
            ) from None
        for entry in entries:
            is_prompts = not name and entry.name == PROMPTS_FILE
            skipped = is_hidden or is_prompts or entry.name.startswith(".")
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in IGNORED:
                    waiting.append((entry.path, f"{name}{entry.name}/", skipped))
                continue
            _refuse_other_names(entry.path)  # DVC records what is hidden, too
            if skipped:
                continue
            if entry.is_symlink() and Path(entry.path).is_dir():
                raise UserError(
                    f"{entry.path} is a link to a folder; copy that folder there, or remove the "
                    "link."
                )
            else:
                yield entry.path, name + entry.name, entry.is_file(follow_symlinks=False)


def _suffix(name: str) -> str:
    """The ending of a path, such as `.txt`, in lower case."""
    dot = name.rfind(".", name.rfind("/") + 2)
    return name[dot:].lower() if 0 <= dot < len(name) - 1 else ""


def _listed(path: str, raw: Raw, parameter: str, *, is_plain: bool) -> Version:
    """The version of a file that may be read. An object is looked at when it is read."""
    if isinstance(raw, Objects):
        return raw.versions[path]
    if not is_plain:
        refuse_special(Path(path), raw, parameter)
    status = os.stat(path)  # noqa: PTH116 (ten times as fast)
    if status.st_size < POINTER_BYTES:
        _refuse_pointer(path, _beginning(path))
    return status.st_size, status.st_mtime_ns


def _refuse_pointer(location: str, beginning: bytes) -> None:
    if beginning.startswith(LFS_POINTER):
        raise UserError(
            f"{location} is a pointer of Git LFS, not the text; `git lfs pull` in its repository, "
            "or `tokenmill fetch`."
        )


def _members(whole: Source, formats: Collection[str], skipped: Counter[str]) -> Iterator[Source]:
    """The files of an archive that have a known format and are not hidden; none is unpacked to
    disk, so a name in it is no path here. The others are counted in `skipped`.

    Raises:
        UserError: it is broken, or such a file has a password or is packed in a rare way.
    """
    try:
        with opened(whole):
            members = _archive(whole.location, whole.version).infolist()
    except BROKEN as error:
        raise _broken(whole, error) from None
    paths = [PurePosixPath(one.filename) for one in members]
    exports = {path.parent for path in paths if EXPORT.fullmatch(path.name)}
    exports &= {path.parent for path in paths if path.name in ACCOUNT}
    for number, (member, path) in enumerate(zip(members, paths, strict=True)):
        parts = [part for part in path.parts if part != ".."]
        is_hidden = any(part.startswith((".", "__MACOSX")) for part in parts)
        if member.filename.endswith("/") or is_hidden:  # a damaged name may be empty
            continue
        ending = path.suffix.lower()
        is_export = not exports.isdisjoint(path.parents)
        if ending not in formats or (is_export and not EXPORT.fullmatch(path.name)):
            skipped[ending] += 1
            continue
        source = replace(
            whole,
            name=f"{whole.name}/{path}",
            format=ending,
            compression=ZIP,
            size=member.compress_size,
            member=number,
            archive=whole.name,
        )
        if member.flag_bits & 1 or member.compress_type not in ZIP_METHODS:
            why = "has a password" if member.flag_bits & 1 else "is packed in a rare way"
            raise UserError(f"{source.place} {why}; unpack the archive and give the folder.")
        yield source


def _beginning(path: str) -> bytes:
    """The first bytes of a file; none if it cannot be read: reading it later raises the error."""
    with contextlib.suppress(OSError), Path(path).open("rb", buffering=0) as file:
        return file.read(BEGINNING)
    return b""


def blocks(source: Source, advance: Advance = lambda _: None) -> Iterator[bytes]:
    """The decompressed bytes of `source`.

    Raises:
        UserError: the file cannot be opened, is a broken archive or one that its name does not
            tell, or changed while it was read.
    """
    try:
        with opened(source) as file:
            if source.compression is None:
                refuse_archive(source, file.peek(BEGINNING))
            yield from _decompressed(source, file, advance)
    except BROKEN as error:
        raise _broken(source, error) from None


def refuse_archive(source: Source, begins: bytes) -> None:
    """Refuse a file that is compressed though its name does not tell it: as text it would be
    garbage in some old encoding, and as a table it has no rows."""
    kinds = COMPRESSIONS | {ZIP: (b"PK\x03\x04",)}
    ending = next((kind for kind, beginnings in kinds.items() if begins.startswith(beginnings)), "")
    if ending and not _is_text(begins[:BEGINNING]):
        raise UserError(
            f"{source.location} is compressed; rename it to {Path(source.location).name}{ending} "
            "(`dvc move`, if DVC tracks it)."
        )


def _broken(source: Source, error: Exception) -> Exception:
    """The error for a broken archive, or `error` itself if it is one of the disk. Those of gzip and
    bz2 have no number; a zip file makes Python seek to where nothing can be."""
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        return error
    if "too much memory" in str(error) or "Memory usage limit" in str(error):
        command = "xz -d" if source.compression == ".xz" else "zstd -d --long=31"
        return UserError(
            f"{source.location} was compressed with a window of more than 128 MiB; unpack it "
            f"(`{command}`) and give that."
        )
    begins = _beginning(source.location)
    of_its_kind = COMPRESSIONS.get(source.compression or "", b"")
    if _is_text(begins) and not begins.startswith(of_its_kind):
        return UserError(
            f"{source.location} is not compressed, as where a server unpacked what it sent; rename "
            f"it to {Path(source.location).stem} (`dvc move`, if DVC tracks it)."
        )
    why = str(error) or "it ends too early"
    return UserError(f"{source.location} is a broken archive ({why}); get it again.")


def _is_text(begins: bytes) -> bool:
    """Whether a file that begins so is text in UTF-8, and no page that a server sends instead."""
    if not begins or begins.lstrip().startswith(b"<") or _CONTROL.search(begins):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(begins)
    except UnicodeDecodeError:
        return False
    return True


@contextlib.contextmanager
def opened(source: Source) -> Iterator[BufferedReader]:
    """Open the file of `source` for reading.

    Raises:
        UserError: the file may not be read, or it has changed by the end of the block.
    """
    try:
        with open_file(source.location) as file:
            if is_url(source.location) and source.version[0] < POINTER_BYTES:
                _refuse_pointer(source.location, file.peek(BEGINNING))
            try:
                yield file
            except Exception:  # what cannot be read may be half-written
                if (now := version_of(file)) == source.version:
                    raise
            else:
                now = version_of(file)
    except PermissionError:
        raise UserError(
            f"{source.location} may not be read (permission denied); chmod +r it or move it away."
        ) from None
    except FileNotFoundError:
        raise UserError(
            f"{source.location} disappeared while it was read; run `dvc repro` again."
        ) from None
    if now != source.version:
        raise changed(source.location)


_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".bz2": bz2.BZ2Decompressor,
    ".xz": functools.partial(lzma.LZMADecompressor, memlimit=XZ_MEMORY),
}


def _decompressed(source: Source, file: IO[bytes], advance: Advance) -> Iterator[bytes]:
    if source.compression == ".zst":
        return _zstd(file, advance)
    if source.compression == ZIP:
        return _unzipped(source, advance)
    if source.compression in _DECOMPRESSORS:
        return _streams(file, _DECOMPRESSORS[source.compression], advance)
    stream: Any = gzip.GzipFile(fileobj=file) if source.compression else file
    return _read(stream, file.tell, advance)


def _read(stream: IO[bytes], position: Callable[[], int], advance: Advance) -> Iterator[bytes]:
    """The blocks of a stream, while `advance` is told by how much `position()` grows."""
    reported = 0
    while block := stream.read(BLOCK_BYTES):
        now = position()
        advance(now - reported)
        reported = now
        yield block


@functools.lru_cache(maxsize=1)
def _archive(location: str, _version: Version) -> zipfile.ZipFile:
    """An archive, open: its list of files is read once, and not again for each of them."""
    return zipfile.ZipFile(open_file(location) if is_url(location) else location)


def _unzipped(source: Source, advance: Advance) -> Iterator[bytes]:
    """A file of an archive; at its end its checksum is compared."""
    assert source.member is not None
    archive = _archive(source.location, source.version)
    member = archive.infolist()[source.member]
    with archive.open(member) as stream:
        yield from _read(
            stream, lambda: source.size * stream.tell() // max(1, member.file_size), advance
        )


def _streams(file: IO[bytes], new: Callable[[], Any], advance: Advance) -> Iterator[bytes]:
    """Decompress one stream after the other. (`bz2.open` and `lzma.open` take whatever follows a
    stream and does not begin one for the end, and lose the rest.)"""
    stream: Any = None
    while data := file.read(BLOCK_BYTES):
        advance(len(data))
        stream = stream or new()
        while data or not (stream.eof or stream.needs_input):
            if stream.eof:
                data = data.lstrip(b"\0")  # as xz pads a stream
                stream = new() if data else stream
                continue
            if block := stream.decompress(data, BLOCK_BYTES):
                yield block
            data = stream.unused_data
    if stream and not stream.eof:
        raise EOFError


def _zstd(file: IO[bytes], advance: Advance) -> Iterator[bytes]:
    """Decompress one frame after the other. (The library's stream_reader takes a truncated frame
    for a complete one.)"""
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
