"""Run git, ask it about a project, and point the refs `epoch-1` ... `epoch-N` at the metrics of a
run's epochs.

With these refs `dvc metrics diff epoch-1 epoch-4` compares epochs of one run. Each ref points at a
small commit with the metrics of that epoch, params.yaml, and a dvc.yaml that names the metrics.
`git fast-import` writes them, so no branch, index or work tree changes, and it works inside any run
of DVC. A ref directly under `refs/` resolves by its last name and, unlike a tag, is neither listed
nor pushed by default.
"""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.words.units import masked

EXPERIMENTS = "refs/exps/"
"""DVC stores an experiment at refs/exps/<two digits of its baseline>/<the other digits>/<name>."""

AUTHOR = "TokenMill <tokenmill@localhost> 946684800 +0000"
"""Fixed, with the beginning of the year 2000, so that the same metrics on the same commit give the
same ref."""


def run(root: Path, *arguments: str, stdin: str = "") -> str:
    """Run git in `root` and return what it prints.

    Raises:
        UserError: git is not installed, or it failed.
    """
    done = _run(root, arguments, stdin)
    if done.returncode:
        message = " ".join(done.stderr.decode("utf-8", "replace").split())
        left = re.search(r"'([^']*\.lock)': File exists", message)
        fix = f"; if no other git runs, a killed one left it: rm {quote(left[1])}" if left else ""
        message = message or f"exit code {done.returncode}"
        raise UserError(f"git {arguments[0]} failed in {root.resolve()}: {message}{fix}")
    return done.stdout.decode("utf-8", "replace")


def ask(root: Path, *arguments: str) -> str | None:
    """What git prints in `root`; None if it fails, as it does outside a repository.

    Raises:
        UserError: git is not installed.
    """
    done = _run(root, arguments)
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def _run(
    root: Path, arguments: tuple[str, ...], stdin: str = ""
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", *arguments], cwd=root, input=stdin.encode(), capture_output=True, check=False
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
    return [
        *names,
        *experiments(root),
        *(name.removeprefix("refs/") for name in references(root, "refs/epoch-*")),
    ]


def content(root: Path, rev: str, file: Path) -> str | None:
    """The text of a file that git tracks at a revision; None if git has no such file."""
    return ask(root, "show", f"{rev}:./{file.as_posix()}")


def write_epoch_refs(
    root: Path, epochs: Sequence[Mapping[str, Mapping[str, Any]]], params: Path
) -> list[str]:
    """Point `epoch-N` at the metrics of each epoch, and remove refs of epochs that no longer exist.

    Args:
        root: of the project.
        epochs: for each epoch, the content of its metrics files by name (`train.json`,
            `eval.json`).
        params: the file of parameters, the same for all epochs.

    Returns:
        The names of the refs; empty where there is no git repository.
    """
    if ask(root, "rev-parse", "--git-dir") is None:
        return []
    parent = (ask(root, "rev-parse", "--verify", "--quiet", "HEAD") or "").strip()
    shared = masked(params.read_text(encoding="utf-8"))
    commits = dict[str, str]()
    for number, metrics in enumerate(epochs, start=1):
        files = {
            f"metrics/{name}": json.dumps(dict(content), indent=2) + "\n"
            for name, content in metrics.items()
        }
        pipeline = "metrics:\n" + "".join(f"  - {name}\n" for name in sorted(files))
        files |= {"params.yaml": shared, "dvc.yaml": pipeline}
        name = f"epoch-{number}"
        commits[name] = _commit(f"refs/{name}", files, parent, f"Metrics after epoch {number}\n")
    run(root, "fast-import", "--quiet", "--force", stdin="".join(commits.values()))
    for ref in references(root, "refs/epoch-*"):
        if re.fullmatch(r"refs/epoch-\d+", ref) and ref.removeprefix("refs/") not in commits:
            run(root, "update-ref", "-d", ref)
    return list(commits)


def _commit(ref: str, files: Mapping[str, str], parent: str, message: str) -> str:
    """What lets `git fast-import` commit exactly these files to a ref. An empty `parent` means
    none."""
    origin = f"from {parent}\n" if parent else ""
    contents = (f"M 100644 inline {path}\n{_data(content)}" for path, content in files.items())
    return (
        f"commit {ref}\ncommitter {AUTHOR}\n{_data(message)}{origin}deleteall\n{''.join(contents)}"
    )


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"
