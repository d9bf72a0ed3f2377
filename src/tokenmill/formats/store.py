"""Shards in a store, which is a shared folder or a bucket, as `runtime.store` names it:

    <store>/<first two digits>/<sha256>

The folder of a stage then holds `store.json` alone in their place (data/packed: besides its
metadata.json), which names the store. So it is read as before after the parameter has changed. What
is fetched is used only after its size and SHA-256 were found right.
"""

import contextlib
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.core import files
from tokenmill.core.errors import UserError
from tokenmill.core.params import Section, SharedPlace
from tokenmill.formats.mounted import Mounted, open_place
from tokenmill.formats.records import read_record
from tokenmill.formats.token_file import HashedFile
from tokenmill.temporary import temporary_folder

MANIFEST = "store.json"


class StoredShard(HashedFile):
    """A shard of clean text in a store."""

    footer: dict[str, int]
    """What its own footer says, so that it need not be fetched for it."""


class Manifest(Section):
    """The content of store.json."""

    store: SharedPlace
    """The folder or URL."""
    shards: list[StoredShard]
    """The shards of clean text, in their order. Those of data/packed are in its metadata.json."""


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write store.json."""
    files.write_json(folder / MANIFEST, manifest.model_dump())


def read_manifest(folder: Path) -> Manifest | None:
    """Read store.json; None if the shards are in the folder itself."""
    path = folder / MANIFEST
    return read_record(path, Manifest) if path.exists() else None


@dataclass(frozen=True)
class ShardFile:
    """A shard, wherever it is. It can be pickled."""

    path: Path
    """The file of a shard in a folder; its name and stage in errors, if it is in a store."""
    store: str | None = None
    stored: HashedFile | None = None
    """What is in the store; None for a file in a folder."""

    def sha256(self) -> str:
        """The SHA-256 of its bytes."""
        return self.stored.sha256 if self.stored else files.sha256_of(self.path)

    @contextlib.contextmanager
    def local(self) -> Iterator[Path]:
        """Yield the shard as a file of this machine: itself, or a copy that exists as long as the
        block.

        Raises:
            UserError: the store does not have it, has other bytes, or cannot be reached.
        """
        if self.store is None or self.stored is None:
            yield self.path
            return
        with temporary_folder() as folder:
            copy = folder / self.path.name
            stage = "clean" if self.path.suffix == ".parquet" else "tokenize"
            Store(self.store).get(self.stored, copy, stage=stage)
            yield copy


class Store:
    """The files below a folder or URL, each under its SHA-256."""

    def __init__(self, url: str):
        """Open the store at `url`.

        Raises:
            UserError: it is no folder here, or the package for such URLs is missing.
        """
        self._url = url.rstrip("/")
        self._fs, self._root = open_place(url, f"the store, on {socket.gethostname()}")

    def put(self, path: Path, file: HashedFile) -> None:
        """Write what is at `path`, whole or not at all, unless it is there. Several tasks may do so
        at once.

        Raises:
            UserError: the store cannot be reached, or refuses it.
        """
        if not self.has(file):
            with files.failing(self._address(file), "written"):
                self._write(path, self._place(file))

    def has(self, file: HashedFile) -> bool:
        """Whether it has the file in full length.

        Raises:
            UserError: the store cannot be reached.
        """
        with files.failing(self._address(file), "read"):
            try:
                return self._fs.size(self._place(file)) == file.size
            except FileNotFoundError:
                return False

    def get(self, file: HashedFile, target: Path, *, stage: str) -> None:
        """Copy a file to `target`, and compare size and SHA-256 with what is expected.

        Args:
            file: what is expected.
            target: the path of the copy.
            stage: the stage that writes the file again, for the error message.

        Raises:
            UserError: it is missing, of other bytes, or the store cannot be reached.
        """
        again = f"`dvc repro --single-item --force {stage}` writes it again"
        place = self._place(file)
        with files.naming(target), files.failing(self._address(file), "read", missing=again):
            is_whole = self._fs.size(place) == file.size
            if is_whole:
                self._fs.get_file(place, str(target))
        if not is_whole or files.sha256_of(target) != file.sha256:
            raise UserError(
                f"{self._address(file)} does not hold the bytes after which it is named; remove "
                f"it, then {again}."
            )

    def names(self) -> dict[str, int]:
        """What is in the store, with sizes: `<first two digits>/<name>`, also what was left by
        somebody who was killed.

        Raises:
            UserError: the store cannot be reached.
        """
        with files.failing(self._url, "read"):
            found: Any = self._fs.find(self._root, detail=True)
        return {path.removeprefix(f"{self._root}/"): int(found[path]["size"]) for path in found}

    def remove(self, name: str) -> None:
        """Remove one of `names()`."""
        with files.failing(self._url, "changed"):
            self._fs.rm_file(f"{self._root}/{name}")

    def _write(self, path: Path, place: str) -> None:
        if not isinstance(self._fs, Mounted):
            self._fs.put_file(str(path), place)
            return
        # Under a name of its own: a task and its repetition may write at the same time
        beside = f"{place}.{uuid.uuid4().hex}"
        self._fs.put_file(str(path), beside)
        Path(beside).replace(place)

    def _place(self, file: HashedFile) -> str:
        return f"{self._root}/{object_name(file.sha256)}"

    def _address(self, file: HashedFile) -> str:
        return f"{self._url}/{object_name(file.sha256)}"


def object_name(sha256: str) -> str:
    """The name of a file in a store."""
    return f"{sha256[:2]}/{sha256}"
