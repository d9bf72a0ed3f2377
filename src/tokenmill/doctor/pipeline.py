"""Where the pipeline stands: what is outdated, who is running it, what a killed run left."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil
from dvc.exceptions import DvcException
from dvc.repo import Repo, lock_repo

from tokenmill.display.units import size
from tokenmill.doctor.finding import Finding, ok, problem, warning
from tokenmill.doctor.patience import TooLong, within
from tokenmill.training.resume_folder import RESUME_FOLDER

PATIENCE = 20.0
"""Seconds for DVC to compare; about one where the machine is idle, longer for large files not seen before."""
WRITTEN = ("data", "data/raw", "data/tokenizer", "metrics", "models", "reports")
"""Folders that stages write into; a folder of raw text may hold millions of others, so nothing below is looked at."""


def outdated(repo: Repo) -> list[str] | None:
    """The stages that `dvc repro` may run, in their order; None if it takes too long to say.

    Those that are changed, as DVC finds, and those that read what they write.

    Raises:
        DvcException: dvc.yaml, dvc.lock or params.yaml cannot be read.
    """
    try:
        return within(PATIENCE, lambda: _outdated(repo))
    except TooLong:
        return None


def _outdated(repo: Repo) -> list[str]:
    with lock_repo(repo), warnings.catch_warnings():  # when it unlocks, DVC forgets dvc.yaml and dvc.lock
        warnings.simplefilter("ignore", DeprecationWarning)  # DVC's, of the library it builds the graph with
        changed = repo.status()
        graph, stages = repo.index.graph, repo.index.stages
    found = todo = [stage for stage in stages if stage.addressing in changed]
    while todo:
        todo = [reader for stage in todo for reader in graph.predecessors(stage) if reader not in found]
        found = [*found, *todo]
    return [getattr(stage, "name", stage.addressing) for stage in stages if stage in found]


def check_status(repo: Repo) -> tuple[Finding, list[str] | None]:
    """Whether the workspace is what dvc.lock says, and the stages that are not."""
    try:
        stages = outdated(repo)
    except DvcException as error:
        return problem("pipeline", " ".join(str(error).split()), "mend dvc.yaml or params.yaml as it says"), None
    if stages is None:
        text = f"not compared: that takes more than {PATIENCE:.0f} s (DVC hashes large files once)"
        return warning("pipeline", text, "dvc status"), None
    if stages:
        return warning("pipeline", f"to run: {', '.join(stages)}", "dvc repro"), stages
    return ok("pipeline", "every stage is up to date"), stages


def running(root: Path) -> list[str]:
    """Commands, each with its process, that work on this pipeline now.

    Raises:
        ValueError: the file by which DVC knows that is damaged.
    """
    path = root / ".dvc" / "tmp" / "rwlock"
    if not path.exists():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    holders = [
        *content.get("write", {}).values(),
        *(entry for read in content.get("read", {}).values() for entry in read),
    ]
    return sorted({f"{holder['cmd']} (process {holder['pid']})" for holder in holders if _lives(holder["pid"])})


def _lives(pid: int) -> bool:
    """Whether there is a process of DVC with this number; another one may have got it since."""
    try:
        return any("dvc" in word for word in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False


def check_running(root: Path) -> Finding:
    """Whether another run is at work here."""
    lock = root / ".dvc" / "tmp" / "rwlock"
    try:
        commands = running(root)
    except (ValueError, KeyError, TypeError, AttributeError):
        return problem("runs", f"{lock} is damaged, DVC will refuse to run", f"rm {lock}")
    if commands:
        return warning(
            "runs", f"at work here: {', '.join(commands)}", "wait for it, or Ctrl-C there: it saves and stops"
        )
    return ok("runs", "none is at work here")


def check_leftovers(root: Path) -> Finding:
    """What killed runs left half-written; the next one of the same stage takes it away."""
    names = [path.relative_to(root).as_posix() for path in sorted(_leftovers(root))]
    if not names:
        return ok("leftovers", "nothing is half-written")
    taken = size(sum(_size(root / name) for name in names))
    return warning(
        "leftovers", f"half-written by a killed run: {', '.join(names)} ({taken})", f"rm -r {' '.join(names)}"
    )


def _leftovers(root: Path) -> Iterator[Path]:
    """What was being written when a process was killed; see `tokenmill.files`."""
    for folder in WRITTEN:
        yield from (root / folder).glob(".*.tmp")
    for path in (root / RESUME_FOLDER).rglob(".*.tmp"):
        if not any(parent.name.endswith(".tmp") for parent in path.parents):
            yield path


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
