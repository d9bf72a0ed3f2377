"""Write files whole or not at all, and know them by their hash.

A file or folder is written beside its place, as `.NAME.tmp`, and then renamed, so that a crash, a
full disk or a reader never meets half of it; what a killed process leaves behind, the next one
overwrites. Nothing is opened for writing in place: with hard links into DVC's cache, that would
silently corrupt the cache.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from tokenmill.core.errors import UserError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The disk is full, the user's quota is used up, or a file may not grow further."""


DVC_CACHE = Path(".dvc/cache")


def refuse_special(path: Path, raw: Path, parameter: str = "data.raw") -> None:
    """Refuse what is no regular file, and links that lead out of `raw`, unless into DVC's cache.

    `parameter` is the parameter that names `raw`; error messages mention it.
    """
    if not path.is_file():
        raise UserError(
            f"{path} is no regular file (a pipe, a device or a broken link); move it out of "
            f"{parameter}."
        )
    target = path.resolve()
    if not any(target.is_relative_to(home.resolve()) for home in (raw, DVC_CACHE)):
        raise UserError(
            f"{path} is a link out of {parameter}, to {target}; copy that file there, or remove "
            "the link."
        )


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
        if path.is_dir():
            shutil.rmtree(path)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a free name beside `path`. What has this name when the block ends is renamed to `path`;
    if the block fails, it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")
    remove(beside)  # a link there would lead the writing elsewhere
    try:
        with naming(path):
            yield beside
        beside.replace(path)
    finally:
        with contextlib.suppress(OSError):
            remove(beside)


def remove(path: Path) -> None:
    """Remove a file, a folder or a link, if there is one; what a link points to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Within this block, name the file in operating-system errors that name none, such as a full
    disk.

    Libraries in Rust (polars, safetensors) wrap such an error in one of their own, whose message
    ends with the error's number.
    """
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    except Exception as error:
        if number := re.search(r"\(os error (\d+)\)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        raise


@contextlib.contextmanager
def enough_room(path: Path, needed: Callable[[], int]) -> Iterator[None]:
    """Within this block, turn a full disk into a sentence that says how much room is needed.

    Args:
        path: what the block writes, for the sentence.
        needed: about how many bytes that takes in all; called only when the disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise UserError(
            f"{path}: {os.strerror(error.errno)}; it takes about {needed():,} bytes. "
            "Make room for them and run `dvc repro` again."
        ) from None


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 with `\\n` line ends on every system."""
    with write_atomic(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON with sorted keys: the same value is always the same bytes."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def rounded(value: float) -> float:
    """The value with six significant digits, as metrics and tables hold it."""
    return float(f"{value:.6g}")
