"""A remote that vanishes or a DVC that is killed within push and pull; two users, or two runs, at
once.

After an interrupted push or pull the next one may transfer a part only, and a push does not say so
(DVC 3.67 keeps what it knew when it was killed). The one after it transfers the rest: a user
repeats it until everything is up to date.
"""

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.kills import SIGNALS
from tests.faults.material import Quiet, state
from tests.faults.table import Result
from tests.pipeline.project import Project

SECONDS = 120.0

NOT_SHARED = "data/tokens/"
"""What `dvc push` leaves out, because `dvc repro` unpacks it in seconds."""

Place = tuple[Project, Path, float]
"""A finished project, the folder that is its remote, and the seconds that `dvc push` takes in
peace."""

Ended = tuple[str, str, list[Project]]
"""How it was disturbed, what all commands said, and the clones that must have every output at the
end."""


def trials(quiet: Quiet, chance: random.Random, count: int, match: str = "") -> Iterator[Result]:
    """Each disturbs once, does the same again in peace, and looks at what a new clone gets."""
    expected = {
        name: sha256
        for name, sha256 in state(quiet.root).items()
        if not name.startswith(NOT_SHARED)
    }
    kinds: list[Callable[[Place, random.Random], Ended]] = [_push, _pull, _two_users, _two_runs]
    kinds = [kind for kind in kinds if match in kind.__name__]
    seconds = 0.0
    for number in range(count):
        kind = kinds[number % len(kinds)]
        with quiet.copy(whole=True) as root:
            project = Project(root)
            remote = root.parent / "remote"
            project.run(
                "dvc", "remote", "add", "--local", "--force", "--default", "near", str(remote)
            )
            seconds = seconds or _seconds_of_push(quiet)
            what, said, users = kind((project, remote, seconds), chance)
            users.append(_clone(project, "new", remote))
            said += _try(users[-1], "dvc", "pull")[1]
            found = [state(user.root) for user in users]
            differing = [
                name for name in expected if any(each.get(name) != expected[name] for each in found)
            ]
            ending = "traceback" if "Traceback" in said else "lost" if differing else "same"
            yield Result(
                "sharing", f"{kind.__name__[1:]}: {what}", ending, f"{said}\n{differing or ''}"
            )


def _seconds_of_push(quiet: Quiet) -> float:
    with quiet.copy(whole=True) as root:
        project = Project(root)
        project.run(
            "dvc",
            "remote",
            "add",
            "--local",
            "--force",
            "--default",
            "near",
            str(root.parent / "remote"),
        )
        began = time.monotonic()
        _try(project, "dvc", "push")
        return time.monotonic() - began


def _push(place: Place, chance: random.Random) -> Ended:
    project, remote, seconds = place
    what, said = _disturbed(project, remote, chance.uniform(0.4, 1) * seconds, chance, "push")
    return what, said + _until_up_to_date(project, "push"), []


def _pull(place: Place, chance: random.Random) -> Ended:
    project, remote, seconds = place
    said = _try(project, "dvc", "push")[1]
    other = _clone(project, "other", remote)
    what, disturbed = _disturbed(other, remote, chance.uniform(0.4, 1) * seconds, chance, "pull")
    said += disturbed + _until_up_to_date(other, "pull")
    return what, said, [other]


def _two_users(place: Place, chance: random.Random) -> Ended:
    project, remote, seconds = place
    other = _clone(project, "other", remote)
    subprocess.run(
        ["cp", "-r", str(project.root / ".dvc/cache"), str(other.root / ".dvc/cache")], check=True
    )
    users = [_start(project, "dvc", "push")]
    time.sleep(after := chance.uniform(0, 0.5) * seconds)
    users.append(_start(other, "dvc", "push"))
    return (
        f"the second {after:.1f} s later",
        "".join(user.communicate(timeout=SECONDS)[0] for user in users),
        [],
    )


def _two_runs(place: Place, chance: random.Random) -> Ended:
    project, _, seconds = place
    runs = [_start(project, "dvc", "repro", "--force", "--single-item", "tokenizer")]
    time.sleep(after := chance.uniform(0, 0.5) * seconds)
    runs.append(_start(project, "dvc", "repro"))
    said = "".join(run.communicate(timeout=SECONDS)[0] for run in runs)
    said += _try(project, "dvc", "repro")[1] + _try(project, "dvc", "push")[1]
    return f"the second {after:.1f} s later", said, [project]


def _disturbed(
    project: Project, remote: Path, after: float, chance: random.Random, command: str
) -> tuple[str, str]:
    """Let the remote vanish, or kill DVC, after so many seconds; the remote is there again
    afterwards."""
    process = _start(project, "dvc", command)
    time.sleep(after)
    if chance.random() < 0.5:
        number = chance.choice(SIGNALS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        return f"{number.name} after {after:.1f} s", process.communicate(timeout=SECONDS)[0]
    away = remote.with_name("away")
    was_there = remote.exists()
    if was_there:
        remote.rename(away)
        remote.write_text("what is mounted here is gone")
    said = process.communicate(timeout=SECONDS)[0]
    if was_there:
        remote.unlink()
        away.rename(remote)
    return f"the remote is gone after {after:.1f} s", said


def _until_up_to_date(project: Project, command: str) -> str:
    said = ""
    for _ in range(4):
        said += (again := _try(project, "dvc", command)[1])
        if "Everything is up to date" in again:
            break
    return said


def _clone(project: Project, name: str, remote: Path) -> Project:
    """A clone as another user has it, with the same remote."""
    folder = project.root.parent / name
    subprocess.run(["git", "clone", "-q", str(project.root), str(folder)], check=True)
    clone = Project(folder)
    clone.run("dvc", "remote", "add", "--local", "--force", "--default", "near", str(remote))
    return clone


def _start(project: Project, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=project.root,
        env=project.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _try(project: Project, *command: str) -> tuple[int, str]:
    process = _start(project, *command)
    said = process.communicate(timeout=SECONDS)[0]
    return process.returncode, said
