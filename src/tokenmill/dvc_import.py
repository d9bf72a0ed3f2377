"""DVC, with a look at what it imports from a git repository of others.

DVC 3.67 acts on what it finds there. It takes remotes from `.dvc/config`, whose settings may name a
program to run; it copies what links point to; and of Git LFS, a pointer chooses the file that it
reads, and the server, which `.lfsconfig` may name, the file that it writes. So the clone that DVC
made is checked before DVC reads it: nothing can change in between.

    python -m tokenmill.dvc_import import …
"""

import re
import stat
import sys
from typing import Any

from dvc.cli import main
from dvc.exceptions import DvcException
from dvc.fs import GitFileSystem
from dvc.repo import Repo, open_repo
from scmrepo.git.lfs.storage import LFSStorage

WAY_OUT = "take its text by `hf download` and `dvc add`"

_clone = open_repo._clone_default_branch  # noqa: SLF001 (DVC has no other place to look)
_path_of = LFSStorage.oid_to_path


def checked_clone(url: str, rev: str | None) -> tuple[str, bool]:
    """Clone as DVC does; check the revision to import, and the one that is checked out, which DVC
    copies.

    Raises:
        DvcException: one has a project of DVC, a link or a submodule, at any depth.
    """
    folder, is_shallow = _clone(url, rev)
    for each in (rev or "refs/remotes/origin/HEAD", "HEAD"):
        fs: Any = GitFileSystem(folder, each).fs
        for name, info in fs.find("/", withdirs=True, detail=True).items():
            _check(name.lstrip("/"), info["mode"])
    return folder, is_shallow


def _check(name: str, mode: int) -> None:
    if name.rsplit("/", 1)[-1] == Repo.DVC_DIR:
        raise DvcException(
            f"{name} makes it a project of DVC, whose configuration may run programs; {WAY_OUT}."
        )
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise DvcException(f"{name} is a link or a submodule; {WAY_OUT}.")


def checked_path(self: LFSStorage, oid: str) -> str:
    """Where an object of Git LFS is kept.

    Raises:
        DvcException: its name is no hash, so it may lead anywhere.
    """
    if not re.fullmatch("[0-9a-f]{64}", oid):
        raise DvcException(f"Git LFS has an object {oid!r}, whose name is no hash; {WAY_OUT}.")
    return _path_of(self, oid)


if __name__ == "__main__":
    open_repo._clone_default_branch = checked_clone  # noqa: SLF001
    LFSStorage.oid_to_path = checked_path
    sys.exit(main(sys.argv[1:]))
