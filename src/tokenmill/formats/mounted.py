"""Places that several machines share: a URL that fsspec knows, or a mounted folder, in which a file
is whole or absent and no link is followed.

Others may write on a shared drive. A link that stands in place of a file or a folder would lead
reading, writing and removing to where it points. What leads to the folder itself is the user's, and
may be a link.
"""

import shutil
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

from tokenmill.core import files
from tokenmill.core.errors import UserError, first_line


def open_place(url: str, name: str) -> tuple[AbstractFileSystem, str]:
    """The file system of a folder or URL, and the path of the folder in it.

    Args:
        url: the folder or URL.
        name: what it is, for error messages.

    Raises:
        UserError: the folder does not exist, or the URL cannot be opened. The folder is never
            created, because below the name of a drive that is not mounted it would be on the
            machine's own disk.
    """
    try:
        fs, path = _opened(url)
    # Every file system fails in its own way
    except Exception as error:
        way_out = "look at the address, at your key for it and at the network"
        if isinstance(error, ImportError | ValueError):  # a package or a protocol
            way_out = "for s3:// `pip install -e '.[s3]'`, or give a folder"
        raise UserError(f"{name} ({url}) cannot be used: {first_line(error)}; {way_out}.") from None
    root = str(path).rstrip("/")
    if not isinstance(fs, LocalFileSystem):
        return fs, root
    if not Path(root).is_dir():
        raise UserError(f"{name} ({url}) is no folder; mount the drive, or make the folder.")
    return Mounted(root), root


def _opened(url: str) -> tuple[AbstractFileSystem, str]:
    try:
        return fsspec.url_to_fs(url, use_listings_cache=False)
    except TypeError:  # that of SSH has no such option, and keeps no listings
        return fsspec.url_to_fs(url)


class Mounted(LocalFileSystem):
    """The local file system below one folder.

    Every method raises UserError where one of the folders between is a link.
    """

    cachable = False  # codespell:ignore cachable

    def __init__(self, root: str):
        """Below the folder `root`."""
        super().__init__()
        self._root_folder = Path(root)

    def _own(self, path: str) -> Path:
        """The path, if it leads through no link.

        Raises:
            UserError: one of the folders above it is a link.
        """
        own = Path(path)
        for folder in own.relative_to(self._root_folder).parents:
            if folder != Path():
                files.refuse_link(self._root_folder / folder)
        return own

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder, which may be there already."""
        files.refuse_link(self._own(path))
        super().makedirs(path, exist_ok=exist_ok)

    def ls(self, path: str, detail: bool = False, **options: Any) -> list[Any]:
        """The paths in a folder.

        Raises:
            UserError: it may not be listed. (`find` takes other errors for a folder that is gone.)
        """
        if self._own(path) != self._root_folder:
            files.refuse_link(Path(path))
        try:
            return super().ls(path, detail=detail, **options)
        except PermissionError as error:
            raise UserError(
                f"{error.filename} may not be read ({error.strerror}); fix its permissions."
            ) from None

    def exists(self, path: str, **_: Any) -> bool:
        """Whether there is a regular file that leads through no link."""
        try:
            return files.is_regular(self._own(path))
        except UserError:
            return False

    def size(self, path: str) -> int:
        """Bytes of a file."""
        return self._own(path).lstat().st_size

    def put_file(self, path1: str, path2: str, callback: Any = None, **_: Any) -> None:  # noqa: ARG002
        """Copy a file to here; a link in its place is replaced."""
        with files.write_beside(self._own(path2)) as beside:
            shutil.copyfile(path1, beside)

    def get_file(self, path1: str, path2: str, callback: Any = None, **_: Any) -> None:  # noqa: ARG002
        """Copy a regular file from here."""
        with (
            files.open_regular(self._own(path1), follow=False) as read,
            files.write_atomic(Path(path2)) as write,
        ):
            shutil.copyfileobj(read, write, 1 << 20)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """The content of a regular file."""
        return files.read_bytes(self._own(path), follow=False)[start:end]

    def rm_file(self, path: str) -> None:
        """Remove a file or a link."""
        self._own(path).unlink()

    def remove(self, path: str) -> None:
        """Remove a folder with all in it; a link goes, and what it points to stays."""
        files.remove(self._own(path))
