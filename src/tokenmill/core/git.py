"""Run git, and ask it about a project: names of revisions, content of tracked files."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from tokenmill.core.errors import UserError

EXPERIMENTS = "refs/exps/"
"""DVC stores an experiment at refs/exps/<two digits of its baseline>/<the other digits>/<name>."""


def run(root: Path, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> str:
    """Run git in `root` and return what it prints; `env` is added to this process's environment.

    Raises:
        UserError: git is not installed, or it failed.
    """
    done = _run(root, arguments, stdin, env)
    if done.returncode:
        message = " ".join(done.stderr.decode("utf-8", "replace").split())
        left = re.search(r"'([^']*\.lock)': File exists", message)
        fix = f"; if no other git runs, a killed one left it: rm {quote(left[1])}" if left else ""
        message = message or f"exit code {done.returncode}"
        raise UserError(f"git {arguments[0]} failed in {root.resolve()}: {message}{fix}")
    return done.stdout.decode("utf-8", "replace")


def ask(root: Path, *arguments: str) -> str | None:
    """Run git in `root` and return what it prints; None if it fails, as it does outside a repository.

    Raises:
        UserError: git is not installed.
    """
    done = _run(root, arguments)
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def _run(
    root: Path, arguments: tuple[str, ...], stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | (env or {})
    try:
        return subprocess.run(
            ["git", *arguments], cwd=root, input=stdin.encode(), capture_output=True, env=environment, check=False
        )
    except FileNotFoundError:
        raise UserError("there is no `git` on the PATH; install git.") from None


def references(root: Path, *patterns: str) -> list[str]:
    """Full names of the refs that match `patterns`, sorted; none outside a git repository."""
    return (ask(root, "for-each-ref", "--format=%(refname)", *patterns) or "").split()


def experiments(root: Path) -> list[str]:
    """Names of the DVC experiments in the project at `root`, sorted."""
    names = [name.removeprefix(EXPERIMENTS).split("/") for name in references(root, EXPERIMENTS)]
    return sorted({parts[2] for parts in names if len(parts) == 3 and len(parts[0]) == 2})


def revisions(root: Path) -> list[str]:
    """Names by which a user may call a revision: branches, tags, experiments, refs of epochs."""
    names = [name.split("/", 2)[2] for name in references(root, "refs/heads", "refs/tags")]
    return [*names, *experiments(root), *(name.removeprefix("refs/") for name in references(root, "refs/epoch-*"))]


def content(root: Path, rev: str, file: Path) -> str | None:
    """The text of a file that git tracks at a revision; None if git has no such file."""
    return ask(root, "show", f"{rev}:./{file.as_posix()}")
