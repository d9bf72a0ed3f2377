"""A folder elsewhere, through fsspec: a mounted drive, another disk, `s3://bucket/prefix`.

A file in it is there whole or not at all: on a file system it is written beside its place and renamed; an object store
shows an object only once its upload has ended.
"""

import errno
import shutil
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tokenmill.errors import UserError
from tokenmill.files import write_atomic


class RemoteFolder:
    """Files in a folder elsewhere, named relative to it with slashes."""

    def __init__(self, url: str):
        """Open `url`, a folder or any URL that fsspec knows; an object store is not asked anything yet.

        Raises:
            UserError: the folder does not exist, or the package for such URLs is missing. A folder is never made, for
                below the name of a drive that is not mounted it would lie on a disk that goes away with the machine.
        """
        self.url = url
        try:
            self._files, root = fsspec.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise UserError(
                f"runtime.checkpoint.mirror ({url}) cannot be used: {error}. For s3:// install `s3fs` "
                "(`pip install -e '.[s3]'`), or give a folder."
            ) from None
        self._root = str(root).rstrip("/")
        self._folder = Path(root) if isinstance(self._files, LocalFileSystem) else None
        if self._folder and not self._folder.is_dir():
            raise UserError(f"runtime.checkpoint.mirror ({url}) is no folder; mount the drive, or make the folder.")

    def put(self, source: Path, name: str) -> None:
        """Copy a file there, whole or not at all."""
        if not self._folder:
            self._files.put_file(str(source), self._path(name))
            return
        if not self._folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, "the folder is gone", str(self._folder))
        with source.open("rb") as read, write_atomic(self._folder / name) as write:
            shutil.copyfileobj(read, write, 1 << 20)

    def get(self, name: str, target: Path) -> None:
        """Copy a file from there."""
        self._files.get_file(self._path(name), str(target))

    def read(self, name: str) -> bytes | None:
        """The bytes of a small file, or None if it is not there."""
        try:
            return self._files.cat_file(self._path(name))
        except FileNotFoundError:
            return None

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        return self._files.exists(self._path(name))

    def names(self, folder: str) -> list[str]:
        """Names of the files and folders in a folder, sorted, without what a killed process left half-written."""
        try:
            paths = self._files.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(name for path in paths if not (name := Path(path).name).startswith("."))

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing happens if it is not there."""
        for path in self._files.find(self._path(name)):  # `rm` would take a bracket in a name for a pattern
            self._files.rm_file(path)
        if self._folder:
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"
