"""Compare the inputs of a stage at its end with those at its start, and fail if they differ.

DVC records parameters and dependencies after a stage has run. If somebody edits params.yaml
meanwhile, DVC would record the new value for a result of the old one, and no later `dvc repro`
would notice. After the error DVC records nothing, and a stage with checkpoints continues from them.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.core.params import PARAMS_FILE, dotted, in_sections, read_yaml
from tokenmill.formats.raw_text import Objects, Raw, raw_text

PIPELINE = Path("dvc.yaml")

CODE = ("src/", "stages/")
"""The folders whose files are hashed, if they have at most HASHED_BYTES. Of all other files the
size and the time of the last change must stay the same."""

HASHED_BYTES = 1 << 20


class Inputs:
    """The inputs of a stage, as dvc.yaml lists them, at one moment."""

    def __init__(self, stage: str):
        """Record the inputs as they are now; without dvc.yaml there are none.

        Args:
            stage: the stage's name in dvc.yaml.
        """
        pipeline = read_yaml(PIPELINE, ["stages"]) if PIPELINE.exists() else {}
        entry = pipeline.get("stages", {}).get(stage, {})
        entry = entry.get("do", entry)
        values = dict(dotted(read_yaml(PARAMS_FILE))) if entry else {}
        self._sections: tuple[str, ...] = tuple(entry.get("params", ()))
        self._paths = [_resolved(path, values) for path in entry.get("deps", ())]
        self._params = in_sections(values, self._sections)
        self._digests = self._digests_now()

    def check_unchanged(self) -> None:
        """Refuse to end well if any input has changed since.

        Raises:
            UserError: names each parameter with both values, and each dependency.
        """
        before = self._params
        values = dict(dotted(read_yaml(PARAMS_FILE))) if self._sections else {}
        now = in_sections(values, self._sections)
        changes = [
            f"{name} ({before.get(name)!r} at the start, {now.get(name)!r} now)"
            for name in sorted(before.keys() | now.keys())
            if before.get(name) != now.get(name)
        ]
        digests = self._digests_now()
        changes += [path for path in self._paths if digests[path] != self._digests[path]]
        if changes:
            raise UserError(
                f"changed while this stage ran: {', '.join(changes)}; its result is that of "
                "before, so nothing is recorded. `dvc repro` runs it as things are now; with the "
                "old values back, training continues from its last checkpoint."
            )

    def _digests_now(self) -> dict[str, str]:
        return {path: _digest(raw_text(path)) for path in self._paths}


def _resolved(dependency: Any, values: Mapping[str, Any]) -> str:
    """The path of a dependency, with the values of its `${…}` filled in."""
    path = next(iter(dependency)) if isinstance(dependency, Mapping) else str(dependency)
    return re.sub(r"\$\{([\w.]+)\}", lambda name: str(values.get(name[1], name[0])), path)


def _digest(path: Raw) -> str:
    """A digest of a file, or of all files below a folder except byte code; of objects, what a
    listing shows."""
    digest = hashlib.sha256()
    if isinstance(path, Objects):
        digest.update(repr(sorted(path.versions.items())).encode())
        return digest.hexdigest()
    for file in _files(path):
        status = file.lstat()
        digest.update(f"{file}\0{status.st_size}\0".encode("utf-8", "surrogateescape"))
        is_code = path.as_posix().startswith(CODE) and stat.S_ISREG(status.st_mode)
        if is_code and status.st_size <= HASHED_BYTES:
            digest.update(file.read_bytes())
        else:
            digest.update(str(status.st_mtime_ns).encode())
    return digest.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if path.is_symlink() or path.is_file():
        yield path
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (Path(folder, name) for name in sorted(names))
