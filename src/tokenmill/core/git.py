"""What git knows of a project: revisions by their names, and the content of files in them."""

import subprocess
from pathlib import Path

from tokenmill.core.errors import UserError

EXPERIMENTS = "refs/exps/"
"""DVC keeps an experiment at refs/exps/<two digits of its baseline>/<the others>/<name>."""


def references(root: Path, *patterns: str) -> list[str]:
    """The full names of the refs below `patterns`, sorted; none outside a git repository."""
    return _git(root, "for-each-ref", "--format=%(refname)", *patterns).split()


def experiments(root: Path) -> list[str]:
    """The names of the DVC experiments of the project at `root`, sorted."""
    inside = [name.removeprefix(EXPERIMENTS).split("/") for name in references(root, EXPERIMENTS)]
    return sorted({parts[2] for parts in inside if len(parts) == 3 and len(parts[0]) == 2})


def revisions(root: Path) -> list[str]:
    """Names that a revision may be called by: branches, tags, experiments, refs of epochs."""
    names = [name.split("/", 2)[2] for name in references(root, "refs/heads", "refs/tags")]
    return [*names, *experiments(root), *(name.removeprefix("refs/") for name in references(root, "refs/epoch-*"))]


def content(root: Path, rev: str, file: Path) -> str | None:
    """The text of a file that git tracks in a revision; None if it has none."""
    return _git(root, "show", f"{rev}:./{file.as_posix()}") or None


def _git(root: Path, *arguments: str) -> str:
    """What git prints; nothing where it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        raise UserError("git is not installed; other revisions cannot be looked at without it.") from None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
