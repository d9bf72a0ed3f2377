"""A revision of a project: its files out of git and out of DVC's cache or remote; the work tree is not touched."""

import difflib
import shutil
from pathlib import Path
from typing import IO, cast

from tokenmill.checkpoints import git
from tokenmill.errors import UserError
from tokenmill.files import write_atomic


class Snapshot:
    """The files that one revision of the project at `root` holds or records."""

    def __init__(self, root: Path, rev: str):
        """Resolve the revision: one of git's, or a DVC experiment.

        Raises:
            UserError: there is no such revision, or no DVC project.
        """
        from dvc.api import DVCFileSystem  # noqa: PLC0415 (takes a second to load)
        from dvc.repo import Repo  # noqa: PLC0415
        from dvc.scm import SCMError  # noqa: PLC0415

        self.root, self.rev = root, rev
        if not (root / ".dvc").is_dir() or not git.references(root):
            raise UserError(f"{root.resolve()} is no DVC project with commits in git; other revisions need one.")
        try:
            if not rev:  # which DVC takes for the work tree
                raise SCMError("no name")
            with Repo(str(root)) as here:  # remotes as they are now: those of a revision lose their folder
                default = {name: here.config["core"][name] for name in ("remote",) if name in here.config["core"]}
                remotes = {"core": default, "remote": dict(here.config["remote"])}
            self._files = DVCFileSystem(str(root), rev=rev, config=remotes)
            self.sha = self._files.repo.get_rev()
        except (SCMError, AttributeError):  # the latter for what is no commit, as HEAD^{tree}
            raise UserError(f"there is no revision or experiment {rev or repr(rev)}; {_near(root, rev)}") from None

    def has(self, file: Path) -> bool:
        """Whether the revision names a file, in git or in dvc.lock; its content may be out of reach."""
        return self._files.exists(f"/{file.as_posix()}")

    def hash_of(self, output: Path) -> str | None:
        """What dvc.lock records of an output, if it does."""
        try:
            recorded = self._files.info(f"/{output.as_posix()}").get("md5")
        except FileNotFoundError:
            return None
        return str(recorded).removesuffix(".dir") if recorded else None

    def copy(self, source: Path, target: Path) -> None:
        """Copy one file, whole or not at all.

        Raises:
            UserError: its content is out of reach.
        """
        try:
            with (
                cast("IO[bytes]", self._files.open(f"/{source.as_posix()}", "rb")) as read,
                write_atomic(target) as write,
            ):
                shutil.copyfileobj(read, write, 1 << 20)
        except Exception as error:  # a remote fails in its own client's ways
            raise UserError(
                f"{source} of {self.rev} ({self.sha[:7]}) is neither in DVC's cache nor in a remote "
                f"({' '.join(str(error).split())}); check it out and `dvc push` where it was trained, or "
                f"`git checkout {self.rev}` and `dvc repro` here."
            ) from None

    def close(self) -> None:
        """Let go of git and DVC."""
        self._files.close()


def _near(root: Path, rev: str) -> str:
    """Names that may have been meant."""
    names = git.revisions(root)
    near = difflib.get_close_matches(rev, names, n=4, cutoff=0.5) or names[:12]
    return f"near it: {', '.join(near)}."
