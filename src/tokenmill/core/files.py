"""Write files whole or not at all, read nothing but regular files, and know them by their hash.

A file or folder is written beside its place, as `.NAME.tmp`, and then renamed, so that a crash, a
full disk or a reader never meets half of it; what a killed process leaves behind, the next one
overwrites. Of several threads or processes that write at one place, each waits for the one before
(`_alone_at`). Nothing is opened for writing in place: with hard links into DVC's cache, that would
silently corrupt the cache.

What is read is opened here, too: a pipe or a device in place of a file would be waited for without
end. Links are followed, because DVC may link to its cache, but not in folders that only this
program writes, as that of checkpoints (`follow=False`): a link there is somebody else's.
"""

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from tokenmill.core.errors import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

DISK_FULL = {
    errno.ENOSPC: "free space",
    errno.EDQUOT: "free space",
    errno.EFBIG: "allow larger files (`ulimit -f unlimited`)",
}
"""The way out where the disk is full, the user's quota is used up, or a file may not grow
further."""

NOT_PERMITTED = (errno.EACCES, errno.EPERM, errno.EROFS)
"""The user may not do this to a file, or nobody may on a disk that is mounted read-only."""

DVC_OBJECT = re.compile(r".*/files/md5/[0-9a-f]{2}/[0-9a-f]{30}", re.DOTALL)
"""Matches the path of a file in a cache of DVC, which may be anywhere (`dvc cache dir`)."""


def refuse_special(path: Path, raw: Path, parameter: str = "data.raw") -> None:
    """Refuse what is no regular file, and links that lead out of `raw`, unless into a cache of DVC.

    `parameter` is the parameter that names `raw`; error messages mention it.
    """
    if not path.is_file():
        raise UserError(
            f"{path} is no regular file (a pipe, a device or a broken link); move it out of "
            f"{parameter}."
        )
    target = path.resolve()
    if not (target.is_relative_to(raw.resolve()) or DVC_OBJECT.fullmatch(target.as_posix())):
        raise UserError(
            f"{path} is a link out of {parameter}, to {target}; copy that file there, or remove "
            "the link."
        )


def open_regular(path: Path, *, follow: bool = True) -> BufferedReader:
    """Open a file for reading.

    Raises:
        UserError: it is a pipe, a device or a folder; or, unless `follow`, a link.
        OSError: it is missing or may not be read.
    """
    if not follow:
        refuse_link(path)
    # Without waiting for somebody to write into a pipe
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(
            f"{path} is no regular file (a pipe, a device or a folder); put a file in its place."
        )
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, *, follow: bool = True) -> bytes:
    """The content of a regular file.

    Raises:
        UserError: as `open_regular`.
        OSError: as `open_regular`.
    """
    with open_regular(path, follow=follow) as file:
        return file.read()


def utf8_text(data: bytes, name: object) -> str:
    """The text that bytes hold; error messages call them `name`.

    Raises:
        UserError: they are not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name} is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8."
        ) from None


def changed(place: object) -> UserError:
    """The error about a file, a folder or an object that is no longer what it was."""
    return UserError(
        f"{place} changed while it was read; run `dvc repro` again when it is complete."
    )


class Unchanged:
    """A file as it is now: what is read of it later may have been written or put there since."""

    def __init__(self, path: Path):
        self.path = path
        self._version = self._version_now()

    @property
    def holds(self) -> bool:
        """Whether the file has the size and the time of the last change that it had."""
        return self._version_now() == self._version

    def check(self) -> None:
        """Refuse a file that has changed, or is missing.

        Raises:
            UserError: it has.
        """
        if not self.holds:
            raise changed(self.path)

    def _version_now(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_size, status.st_mtime_ns


def append_text(path: Path, text: str) -> None:
    """Append to a file of this program that is there already; a link or a pipe in its place is not
    followed.

    Raises:
        OSError: it is missing, a link or a pipe.
    """
    flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    with naming(path), os.fdopen(os.open(path, flags), "wb") as file:
        file.write(text.encode())


def refuse_link(path: Path) -> None:
    """Refuse a link in place of something that only this program writes.

    Raises:
        UserError: it is one.
    """
    if path.is_symlink():
        raise UserError(f"{path} is a link, which is not followed here; remove it.")


def is_regular(path: Path) -> bool:
    """Whether there is a file, and not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


@contextlib.contextmanager
def write_beside(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` to write a file at. When the block ends, the file is renamed to
    `path`; if the block fails, the file is removed."""
    with _replacing(path) as beside:
        yield beside
        with beside.open("rb+") as file:
            os.fsync(file.fileno())


@contextlib.contextmanager
def write_atomic(path: Path) -> Iterator[IO[bytes]]:
    """Write a binary file that appears at `path` whole when the block ends, or not at all."""
    with write_beside(path) as beside, beside.open("wb") as file:
        yield file


@contextlib.contextmanager
def write_directory(path: Path) -> Iterator[Path]:
    """Give an empty folder that replaces `path` at the block's end, or vanishes if it fails."""
    with _replacing(path) as beside:
        beside.mkdir()
        yield beside
        remove(path)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a free name beside `path`. What has this name when the block ends is renamed to `path`;
    if the block fails, it is removed."""
    _refuse_detour(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")
    with _alone_at(path):
        remove(beside)  # a link there would lead the writing elsewhere
        try:
            with naming(path, beside):
                yield beside
                beside.replace(path)
        finally:
            with contextlib.suppress(OSError):
                remove(beside)


def _refuse_detour(path: Path) -> None:
    """Refuse a path that leads elsewhere once its missing folders are made: it was not seen what
    would be replaced there."""
    if path.name in ("", "..") or (".." in path.parts and not path.parent.is_dir()):
        raise UserError(f"{path} leads through a folder that is not there; write it without `..`.")


_turn = threading.Condition()
_taken: set[bytes] = set()
"""The places at which a thread of this process writes."""


@contextlib.contextmanager
def _alone_at(path: Path) -> Iterator[None]:
    """Within this block, no other thread is in such a block for the same path, nor another process
    of this user on this machine, where the system can lock."""
    place = os.fsencode(path.parent.resolve() / path.name)
    with _turn:
        _turn.wait_for(lambda: place not in _taken)
        _taken.add(place)
    try:
        with _locked(place):
            yield
    finally:
        with _turn:
            _taken.remove(place)
            _turn.notify_all()


@contextlib.contextmanager
def _locked(place: bytes) -> Iterator[None]:
    """Within this block, this process has the lock of a place, where the system can lock."""
    descriptor = _lock_file()
    if fcntl is None or descriptor is None:
        yield
        return
    byte = int.from_bytes(hashlib.sha256(place).digest()[:7], "big")
    with contextlib.suppress(OSError):
        fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, byte)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, byte)


@functools.cache
def _lock_file() -> int | None:
    """A file of this user, in which each path has a byte that can be locked; None where there can
    be none. It stays open: with the first descriptor that closes, a process loses its locks."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        user = os.getuid()
        descriptor = os.open(Path(tempfile.gettempdir(), f"tokenmill-{user}.lock"), flags, 0o600)
    except (OSError, AttributeError):  # Windows knows users otherwise
        return None
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == user:
        return descriptor
    os.close(descriptor)
    return None


@contextlib.contextmanager
def hold_lock(path: Path, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Within this block, no other process is in such a block for the same file, which is made and
    stays. If one is, `waiting` is called, and its end is waited for.

    Raises:
        UserError: there is a link at `path`.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 (hardly a command locks)

    refuse_link(path)
    lock = FileLock(path)
    try:
        with naming(path):
            lock.acquire(timeout=0)
    except Timeout:
        waiting()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Make `target` the same file as `source`, or where there is a `target` already, or the file
    system has no hard links, a copy.

    Raises:
        UserError: `source` is a link.
        OSError: `source` is missing, or there is no room for a copy.
    """
    refuse_link(Path(source))
    with contextlib.suppress(OSError):
        if os.name != "nt":
            os.link(source, target)
            return
    with write_beside(Path(target)) as beside:  # not into it, for it may have other names
        shutil.copyfile(source, beside)


def expect(path: Path, size: int | None = None) -> None:
    """Check that this machine sees what another one of a cluster has made.

    Raises:
        UserError: `path` is not there, or is no file of `size` bytes.
    """
    if not path.exists() or (size is not None and path.stat().st_size != size):
        raise UserError(
            f"{socket.gethostname()} does not see {path} as another machine has written it; put "
            "the project where every machine of the cluster has it under the same path."
        )


def remove(path: Path) -> None:
    """Remove a file, a folder or a link, if there is one; what a link points to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path, beside: Path | None = None) -> Iterator[None]:
    """Within this block, name the file in operating-system errors that name none, such as a full
    disk, and in place of `beside`.

    Libraries in Rust (polars, safetensors) wrap such an error in one of their own, whose message
    ends with the error's number.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            if error.filename is None or str(beside) in (error.filename, error.filename2):
                error.filename = str(path)
        elif number := re.search(r"\(os error (\d+)\)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        raise


@contextlib.contextmanager
def enough_room(path: Path, needed: Callable[[], int], *, or_else: str = "") -> Iterator[None]:
    """Within this block, turn a full disk into a sentence that says how much room is needed. An
    error that names a file elsewhere, as in a store, is raised as it is.

    Args:
        path: what the block writes, for the sentence.
        needed: about how many bytes that takes in all; called only when the disk is full.
        or_else: another way out, such as ", or take a larger disk".
    """
    try:
        yield
    except OSError as error:
        place = Path(error.filename or path).resolve()
        if error.errno not in DISK_FULL or not place.is_relative_to(path.parent.resolve()):
            raise
        raise UserError(
            f"{path}: {os.strerror(error.errno)}; it takes about {needed():,} bytes; "
            f"{DISK_FULL[error.errno]}{or_else} and run `dvc repro` again."
        ) from None


@contextlib.contextmanager
def failing(address: str, verb: str, *, missing: str | None = None) -> Iterator[None]:
    """Within this block, turn what a file system raises into a sentence.

    Args:
        address: what the block works on.
        verb: what could not be done with it, such as `read`.
        missing: the way out if it is not there.
    """
    try:
        yield
    except UserError:
        raise
    # Every file system fails in its own ways
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            raise
        if missing and isinstance(error, FileNotFoundError):
            raise UserError(f"{address} is missing; {missing}.") from None
        why = " ".join(str(error).split()) or type(error).__name__
        # A server's refusal names no file
        is_here = isinstance(error, OSError) and error.filename and error.errno in NOT_PERMITTED
        look = f"see that it may be {verb} on" if is_here else "look at network and credentials of"
        raise UserError(
            f"{address} cannot be {verb} ({why}); {look} {socket.gethostname()}, then type the "
            "same command again."
        ) from None


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 with `\\n` line ends on every system."""
    with write_atomic(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON with sorted keys: the same value is always the same bytes."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def sha256_of(path: Path, *, follow: bool = True) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        UserError: as `open_regular`.
        OSError: as `open_regular`.
    """
    with open_regular(path, follow=follow) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
