"""Run git, and ask it about a project."""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from tokenmill.core.errors import UserError

EXPERIMENTS = "refs/exps/"
EXPERIMENT_REF = re.compile(r"refs/exps/([0-9a-f]{2})/([0-9a-f]{38}|[0-9a-f]{62})/([^/]+)")
"""Matches the ref of a DVC experiment: refs/exps/<two digits of its baseline>/<the other
digits>/<name>."""

NO_EXPERIMENTS = ("apply", "celery", "exec", "stash", "temp")
"""The other names below refs/exps, for what DVC applied, queued, runs or stashed
(`dvc.repo.experiments.refs`)."""

OF_THE_USER = ("GIT_CONFIG_", "GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CEILING_DIRECTORIES")
"""Variables of git that name no repository: who the user is, and where to stop looking for one."""


def own_environment() -> dict[str, str]:
    """The environment without the variables of git that lead to another repository, as a hook of
    git sets them."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(OF_THE_USER)
    }


def execute(root: Path, *arguments: str, stdin: str = "") -> str:
    """Run git in `root` and return what it prints."""
    done = _run(root, arguments, stdin)
    if done.returncode:
        message = _complaint(done)
        left = re.search(r"'([^']*\.lock)': File exists", message)
        fix = f"; if no other git runs, a killed one left it: rm {quote(left[1])}" if left else ""
        raise UserError(f"git {arguments[0]} failed in {root.resolve()}: {message}{fix}")
    return done.stdout.decode("utf-8", "replace")


def ask(root: Path, *arguments: str) -> str | None:
    """What git prints in `root`; None if it fails, as it does outside a repository.

    Raises:
        UserError: git is not installed.
    """
    done = _run(root, arguments)
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def failure(root: Path, *arguments: str) -> str:
    """What git says about its failure in `root`, on one line; empty if it does not fail."""
    done = _run(root, arguments)
    return _complaint(done) if done.returncode else ""


def failure_of_dvc(root: Path) -> str:
    """What libgit2, by which DVC reads git, says about its failure in `root`; empty if it does not
    fail. It may refuse what git takes, as it does not read the file that GIT_CONFIG_GLOBAL
    names."""
    import pygit2  # noqa: PLC0415 (most commands do without it)

    try:
        if found := pygit2.discover_repository(str(root)):
            pygit2.Repository(found)
    except pygit2.GitError as error:
        return " ".join(str(error).split())
    return ""


def refuse_unreadable(root: Path) -> None:
    """Refuse a repository that DVC, or git itself, cannot read.

    Raises:
        UserError: there is no repository, or git or libgit2 fails in it.
    """
    try:
        execute(root, "rev-parse", "--git-dir")
        said = failure_of_dvc(root)
    except UserError as error:
        raise UserError(f"{error}; `tokenmill doctor` says more.") from None
    if said:
        raise UserError(
            f"DVC cannot read git in {root.resolve()}: {said}; `tokenmill doctor` says more."
        )


def _complaint(done: subprocess.CompletedProcess[bytes]) -> str:
    said = " ".join(done.stderr.decode("utf-8", "replace").split())
    return said or f"exit code {done.returncode}"


def _run(
    root: Path, arguments: tuple[str, ...], stdin: str = ""
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", *arguments],
            cwd=root,
            input=stdin.encode(),
            capture_output=True,
            check=False,
            env=own_environment(),
        )
    except FileNotFoundError:
        raise UserError("there is no `git` on the PATH; install git.") from None


def references(root: Path, *patterns: str) -> list[str]:
    """Full names of the refs that match `patterns`, sorted; none outside a git repository."""
    return list(_commits(root, *patterns))


def _commits(root: Path, *patterns: str) -> dict[str, str]:
    """The same, each with the hash of what it names."""
    said = ask(root, "for-each-ref", "--format=%(refname) %(objectname)", *patterns) or ""
    lines = said.split("\n")  # a name may have a no-break space
    return {name: commit for name, _, commit in (line.partition(" ") for line in lines) if name}


@dataclass(frozen=True)
class Experiment:
    """A DVC experiment."""

    name: str
    baseline: str
    """The commit that the experiment began from. It may be missing here, as after
    `dvc exp pull`."""
    commit: str


def experiments(root: Path) -> list[Experiment]:
    """The DVC experiments in the project at `root`, by name. Experiments of different baselines may
    have the same name.

    Raises:
        UserError: a ref is none of DVC's; its own commands end in a traceback then.
    """
    if broken := broken_experiments(root):
        raise UserError(
            f"git's {broken[0]} is no experiment, and DVC fails on it; `git update-ref -d "
            f"{quote(broken[0])}` removes it."
        )
    found = [
        Experiment(ref[3], baseline=ref[1] + ref[2], commit=commit)
        for name, commit in _experiment_refs(root).items()
        if (ref := EXPERIMENT_REF.fullmatch(name))
    ]
    return sorted(found, key=lambda one: (one.name, one.baseline))


def broken_experiments(root: Path) -> list[str]:
    """The refs below refs/exps on which DVC's own commands end in a traceback."""
    return [ref for ref in _experiment_refs(root) if not EXPERIMENT_REF.fullmatch(ref)]


def _experiment_refs(root: Path) -> dict[str, str]:
    """The refs of experiments, and those on which DVC fails, each with its commit."""
    return {
        ref: commit
        for ref, commit in _commits(root, EXPERIMENTS).items()
        if not ref.removeprefix(EXPERIMENTS).startswith(NO_EXPERIMENTS)
    }


def commits_here(root: Path, commits: Sequence[str]) -> set[str]:
    """The commits, given by their full hashes, that this repository has."""
    if not commits:
        return set()
    said = execute(
        root, "cat-file", "--batch-check", stdin="".join(f"{each}\n" for each in commits)
    )
    return {line.split()[0] for line in said.splitlines() if line.split()[1] == "commit"}


def revisions(root: Path) -> list[str]:
    """The names of revisions that a user may type: branches, tags, experiments, refs of epochs."""
    names = [name.split("/", 2)[2] for name in references(root, "refs/heads", "refs/tags")]
    return [
        *names,
        *dict.fromkeys(experiment.name for experiment in experiments(root)),
        *(name.removeprefix("refs/") for name in references(root, "refs/epoch-*")),
    ]


def commit_time(root: Path, rev: str) -> str | None:
    """When a revision was committed, in ISO 8601 with the time zone; None if git has no such
    commit."""
    said = ask(root, "rev-list", "--max-count=1", "--format=%cI", rev, "--")
    return said.splitlines()[-1] if said else None  # the line before it names the commit


def folder(root: Path) -> str:
    """The path of `root` from the top of its repository, with a slash at its end; empty at the top
    and outside a repository."""
    return (ask(root, "rev-parse", "--show-prefix") or "").removesuffix("\n")


def content(root: Path, rev: str, file: Path) -> bytes:
    """A file that git tracks at a revision; empty if git has no such file."""
    done = _run(root, ("show", f"{rev}:./{file.as_posix()}"))
    return b"" if done.returncode else done.stdout
