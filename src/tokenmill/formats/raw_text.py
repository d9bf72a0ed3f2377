"""Raw text where it is: a file or folder here, or objects in S3, whose folders are only names.

`raw_text` is the one way from the value of a parameter to the place. A path stays a Path. Objects
are read in ranges by fsspec; each process opens the file system for itself, with the credentials
of its own environment. s3fs asks with every range for the ETag that the object had when it was
opened, so no other version gets into what is read.
"""

import functools
import io
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias

from tokenmill.core.files import changed, failing
from tokenmill.core.params import is_url
from tokenmill.core.paths import real_path

if TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem

RANGE_BYTES = 4 << 20
"""Bytes of an object that are asked for at a time: long enough that waiting for an answer takes
less time than its bytes."""

Version: TypeAlias = tuple[int, int | str]
"""The size of a file, and when it was last written, in nanoseconds; of an object its ETag."""


@dataclass(frozen=True)
class Objects:
    """An object, or all those below a prefix, as one listing shows them."""

    url: str
    """Without a slash at its end."""

    def __str__(self) -> str:
        return self.url

    def as_posix(self) -> str:
        """The URL, as a path is written to a report."""
        return self.url

    def __truediv__(self, name: str) -> "Objects":
        return Objects(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]

    def exists(self) -> bool:
        """Whether there is anything, if only an empty bucket."""
        if self.versions:
            return True
        fs, path = _opened(self.url)
        with failing(self.url, "listed"):
            return fs.exists(path)

    def is_dir(self) -> bool:
        """Whether it is no single object."""
        return self.url not in self.versions

    @functools.cached_property
    def versions(self) -> dict[str, Version]:
        """The URL of each object, with its version; without those of no bytes that stand for a
        folder.

        Raises:
            UserError: the server cannot be asked, or refuses.
        """
        fs, path = _opened(self.url)
        with failing(self.url, "listed"):
            try:
                found: Any = fs.find(path, detail=True)
            except FileNotFoundError:
                found = {}
        return {
            f"s3://{name}": _version(info)
            for name, info in found.items()
            if info["size"] or not name.endswith("/")
        }


Raw: TypeAlias = Path | Objects


def raw_text(value: str, root: Path = Path()) -> Raw:
    """The place that the parameter `data.raw` of the project in `root` names."""
    return Objects(value.rstrip("/")) if is_url(value) else root / value


def holds(raw: Raw, place: str) -> bool:
    """Whether a path or URL is that of raw text or lies in it."""
    if isinstance(raw, Objects) or is_url(place):
        return f"{place}/".startswith(f"{raw}/")
    return real_path(place).is_relative_to(real_path(raw))


def open_file(location: str) -> io.BufferedReader:
    """Open a file by its path, or an object by its URL.

    Raises:
        OSError: the file is missing or may not be read.
        UserError: so is the object, or its server does not answer; reading raises it too.
    """
    if not is_url(location):
        return open(location, "rb")  # noqa: PTH123 (a path costs as much as the file)
    file = _ObjectFile(location)
    return io.BufferedReader(file, max(1, min(RANGE_BYTES, file.version[0])))


def version_of(file: io.BufferedReader) -> Version:
    """The version of an open file now; of an object, that of all that is read."""
    if isinstance(file.raw, _ObjectFile):
        return file.raw.version
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


class _ObjectFile(io.RawIOBase):
    """An object of one version, whose errors are sentences."""

    def __init__(self, url: str):
        super().__init__()
        self._url = url
        fs, path = _opened(url)
        with failing(url, "read", missing="it disappeared; run `dvc repro` again"):
            # The buffer is that of the reader around this
            self._file: Any = fs.open(path, "rb", cache_type="none")
        self.version = _version(self._file.details)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        with failing(self._url, "read", missing="it disappeared; run `dvc repro` again"):
            try:
                return self._file.readinto(buffer)
            except OSError as error:
                from s3fs.utils import FileExpired  # noqa: PLC0415 (only this file system has it)

                if isinstance(error, FileExpired):  # another ETag
                    raise changed(self._url) from None
                raise


def _opened(url: str) -> tuple["AbstractFileSystem", str]:
    """The file system of a URL and the path in it. The names of objects are somebody else's:
    fsspec never sees one in a URL, of which `::` would open something else."""
    from tokenmill.formats.mounted import open_place  # noqa: PLC0415 (fsspec)

    path = url.removeprefix("s3://")
    fs, _ = open_place(f"s3://{PurePosixPath(path).parts[0]}", "the raw text")
    return fs, path


def _version(info: dict[str, Any]) -> Version:
    return int(info["size"]), str(info["ETag"])
