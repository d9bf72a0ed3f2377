"""Read the files of another revision, out of git and out of DVC's cache or remote; the work tree stays untouched.

DVC's own file system over a revision reads the cache first, then the remote. Outputs that are fetched are kept below
`.dvc/tmp/tokenmill`, under the hash that dvc.lock records, and are not fetched twice. Importing this module loads DVC,
which takes a second.
"""

import difflib
import shutil
from pathlib import Path
from typing import IO, cast

from dvc.api import DVCFileSystem
from dvc.repo import Repo
from dvc.scm import SCMError
from filelock import FileLock

from tokenmill.core import git
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_atomic

FETCHED = Path(".dvc/tmp/tokenmill")
"""Where fetched outputs are kept; git ignores it, and deleting it costs only the fetching."""


class Revision:
    """The files that one revision of the project at `root` holds or records."""

    def __init__(self, root: Path, rev: str):
        """Resolve the revision: one of git's, or a DVC experiment.

        Raises:
            UserError: there is no such revision, or no DVC project.
        """
        self.root, self.rev = root, rev
        if not (root / ".dvc").is_dir() or not git.references(root):
            raise UserError(f"{root.resolve()} is no DVC project with commits in git; other revisions need one.")
        try:
            if not rev:  # DVC would take the work tree
                raise SCMError("no name")
            with Repo(str(root)) as here:  # with today's remotes: those of a revision lose their folder
                default = {name: here.config["core"][name] for name in ("remote",) if name in here.config["core"]}
                remotes = {"core": default, "remote": dict(here.config["remote"])}
            self._files = DVCFileSystem(str(root), rev=rev, config=remotes)
            self.sha = self._files.repo.get_rev()
        except (SCMError, AttributeError):  # AttributeError for what is no commit, as HEAD^{tree}
            raise UserError(f"there is no revision or experiment {rev or repr(rev)}; {_similar(root, rev)}") from None

    def has(self, file: Path) -> bool:
        """Whether git or dvc.lock names the file; its content may be out of reach."""
        return self._files.exists(f"/{file.as_posix()}")

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
        except Exception as error:  # each remote's client raises errors of its own
            raise UserError(
                f"{source} of {self.rev} ({self.sha[:7]}) is neither in DVC's cache nor in a remote "
                f"({' '.join(str(error).split())}); check it out and `dvc push` where it was trained, or "
                f"`git checkout {self.rev}` and `dvc repro` here."
            ) from None

    def fetch(self, output: Path, names: list[str]) -> Path:
        """Fetch files of one output, unless they are here; return the folder that holds them under the same names.

        Raises:
            UserError: the revision does not record the output, or a file is out of reach.
        """
        target = self.root / FETCHED / self._hash_of(output)
        if all((target / name).exists() for name in names):
            return target
        target.mkdir(parents=True, exist_ok=True)
        with FileLock(target / ".lock"):
            for name in names:
                if not (target / name).exists():
                    self.copy(output / name, target / name)
        return target

    def _hash_of(self, output: Path) -> str:
        """The hash that dvc.lock records for an output."""
        try:
            recorded = self._files.info(f"/{output.as_posix()}").get("md5")
        except FileNotFoundError:
            recorded = None
        if not recorded:
            raise UserError(
                f"{self.rev} ({self.sha[:7]}) records no {output}: nothing was trained there; "
                f"run `git checkout {self.rev}` and `dvc repro`."
            )
        return str(recorded).removesuffix(".dir")

    def close(self) -> None:
        """Release git and DVC."""
        self._files.close()


def _similar(root: Path, rev: str) -> str:
    """Names that the user may have meant."""
    names = git.revisions(root)
    near = difflib.get_close_matches(rev, names, n=4, cutoff=0.5) or names[:12]
    return f"near it: {', '.join(near)}."
