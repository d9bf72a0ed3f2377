"""Git: is there a repository, and is what the pipeline wrote in it?"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from tokenmill.doctor.finding import Finding, ok, problem, warning

TOGETHER = ("dvc.lock", "dvc.yaml", "params.yaml", "metrics", "reports")
"""What belongs into one commit: a clone without matching ones trains again."""
COMMIT = "git add -A && git commit"


def uncommitted(root: Path) -> list[str] | None:
    """Files of TOGETHER that differ from the last commit or are in none; None outside of a git repository."""
    command = ["git", "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *TOGETHER]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    return sorted(entry[3:] for entry in done.stdout.split("\0") if entry)


def checks(root: Path) -> Iterator[Finding]:
    """The repository, its branch, what is not committed."""
    try:
        files = uncommitted(root)
    except FileNotFoundError:
        yield problem("git", "there is no `git` on the PATH; DVC needs it", "install git")
        return
    if files is None:
        yield problem("git", f"{root.resolve()} is not in a git repository, or git refuses it", "git status")
        return
    yield _branch(root)
    if files:
        yield warning("commit", f"not committed: {few(files)}", COMMIT)
    else:
        yield ok("commit", f"{', '.join(TOGETHER)} are as committed")


def _branch(root: Path) -> Finding:
    command = ["git", "symbolic-ref", "--quiet", "--short", "HEAD"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        return warning("git", "HEAD is on no branch, as after a killed `dvc exp run`", "git switch main")
    return ok("git", f"on branch {done.stdout.strip()}")


def few(files: list[str]) -> str:
    """Four of the names, and how many more."""
    return ", ".join(files[:4]) + (f" and {len(files) - 4} more" if len(files) > 4 else "")
