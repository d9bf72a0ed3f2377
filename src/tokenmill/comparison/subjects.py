"""From what a person types to what is compared: `workspace`, `epoch-2`, `HEAD`, `blest-jube`, `blest-jube:2`."""

import contextlib
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tokenmill import paths
from tokenmill.checkpoints.snapshot import Snapshot
from tokenmill.comparison.subject import FILES, Run, Subject
from tokenmill.errors import UserError

WORKSPACE = "workspace"
EPOCH = re.compile(r"epoch-(\d+)")
"""An epoch of the workspace's run: the name of the git ref that holds its metrics."""
AT_EPOCH = re.compile(r"(?P<rev>.+):(?P<epoch>\d+)")


def subjects(root: Path, names: Sequence[str]) -> list[Subject]:
    """What these names stand for; one alone is compared with the workspace, none at all means its first and last epoch.

    Args:
        root: of the project.
        names: revisions for git, DVC experiments, `workspace`; each also with `:N` for its epoch N; or `epoch-N`.

    Raises:
        UserError: there is no such revision or epoch, or its evaluation is out of reach.
    """
    runs: dict[str, Run] = {}
    found = []
    for name in _completed(root, names, runs):
        rev, epoch = _taken_apart(name)
        found.append(Subject.of(name, _run(root, rev, runs), epoch))
    return found


def _completed(root: Path, names: Sequence[str], runs: dict[str, Run]) -> list[str]:
    """At least two names, if there are two things to compare."""
    if len(names) == 1 and names[0] != WORKSPACE:
        return [*names, WORKSPACE]
    if len(names) > 1:
        return list(names)
    last = len(_run(root, WORKSPACE, runs).evaluation.epochs)
    return ["epoch-1", f"epoch-{last}"] if last > 1 else ["epoch-1"]


def _taken_apart(name: str) -> tuple[str, int | None]:
    """A revision, and an epoch if one was named."""
    if match := EPOCH.fullmatch(name):
        return WORKSPACE, int(match[1])
    if match := AT_EPOCH.fullmatch(name):
        return match["rev"], int(match["epoch"])
    return name, None


def _run(root: Path, rev: str, runs: dict[str, Run]) -> Run:
    """The run of a revision, read once."""
    if rev not in runs:
        runs[rev] = _workspace(root) if rev == WORKSPACE else _at(root, rev)
    return runs[rev]


def _workspace(root: Path) -> Run:
    if not (root / paths.EVALUATION).exists():
        raise UserError(
            f"{root / paths.EVALUATION} is missing; `dvc repro` makes it, "
            "`dvc pull evaluate` fetches it where it was pushed."
        )
    return Run.read(WORKSPACE, root)


def _at(root: Path, rev: str) -> Run:
    """The run that a revision records, out of git and DVC's cache or remote."""
    with contextlib.closing(Snapshot(root, rev)) as snapshot, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in FILES:
            if not snapshot.has(file):
                raise UserError(
                    f"{rev} ({snapshot.sha[:7]}) has no {file}: the pipeline had not run to its end there; "
                    f"`git checkout {rev}` and `dvc repro` would."
                )
            snapshot.copy(file, folder / file)
        return Run.read(rev, folder)
