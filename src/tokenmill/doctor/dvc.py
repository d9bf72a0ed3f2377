"""Work that may take long, for a while only.

DVC's side: the repository, links between cache and workspace, the remote.

Where the pipeline stands: what is outdated, who is running it, what a killed run left.
"""

import json
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlparse

import psutil
from dvc.exceptions import DvcException, NotDvcRepoError
from dvc.repo import Repo, lock_repo
from dvc.scm import SCMError
from dvc_objects.fs import generic
from dvc_objects.fs.errors import RemoteMissingDepsError
from dvc_objects.fs.local import localfs

from tokenmill.core.units import size
from tokenmill.doctor.finding import Finding, ok, problem, warning
from tokenmill.training.checkpoint import RESUME_FOLDER

T = TypeVar("T")


class TooLong(Exception):  # noqa: N818 (it says what happened)
    """The time is over; the work goes on in a thread that ends with this process."""


class _Outcome(Generic[T]):
    value: T
    error: BaseException | None = None


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` gives or raises.

    Raises:
        TooLong: not within so many seconds.
    """
    outcome: _Outcome[T] = _Outcome()

    def run() -> None:
        try:
            outcome.value = work()
        except BaseException as error:
            outcome.error = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TooLong
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


PATIENCE = 10.0
"""Seconds that a remote has to answer."""


def open_repository(root: Path) -> tuple[Finding, Repo | None]:
    """Whether `root` is a DVC repository, and the repository."""
    logging.getLogger("dvc").setLevel(logging.CRITICAL)  # what it would say is among the findings
    try:
        repo = Repo(str(root))
    except NotDvcRepoError:
        return problem("dvc", f"{root.resolve()} is not a DVC repository", "git checkout .dvc, or: dvc init"), None
    except (DvcException, SCMError) as error:
        return problem("dvc", f"{error}", "look into .dvc/config, .dvc/config.local and git status"), None
    from dvc import __version__  # noqa: PLC0415

    return ok("dvc", f"{__version__}, cache in {repo.cache.local.path}"), repo


def links(repo: Repo) -> bool:
    """Whether the cache's files appear in the workspace without a second copy."""
    wished = [kind for kind in repo.cache.local.cache_types if kind != "copy"]
    cache = _existing(Path(repo.cache.local.path))
    inside = str(Path(repo.tmp_dir or repo.root_dir) / "link")
    return bool(generic.test_links(wished, localfs, str(cache), localfs, inside))


def check_links(repo: Repo) -> Finding:
    """Whether what DVC keeps takes the disk once or twice."""
    folder = Path(repo.cache.local.path)
    if not os.access(_existing(folder), os.W_OK):
        return problem("cache", f"{folder} cannot be written", f"sudo chown -R $USER {folder}")
    if links(repo):
        return ok("cache", "linked into the workspace: nothing lies on the disk twice")
    return warning(
        "cache",
        f"no links between {folder} and the workspace: every output lies on the disk twice",
        "dvc config cache.type hardlink,symlink,copy; and a cache on the same disk: dvc cache dir .dvc/cache",
    )


def check_remote(repo: Repo) -> Finding:
    """Whether `dvc push` and `dvc pull` would reach the default remote."""
    name = repo.config["core"].get("remote")
    if not name:
        return warning("remote", "none: nobody else can `dvc pull` what you train", "dvc remote add -d NAME URL")
    if name not in repo.config["remote"]:
        there = ", ".join(repo.config["remote"]) or "none"
        return problem("remote", f"{name} is the default, but there is {there}", "dvc remote default NAME")
    url = str(repo.config["remote"][name]["url"])
    if urlparse(url).scheme in ("", "file"):
        return _folder(name, Path(urlparse(url).path))
    return _distant(repo, name, url)


def _folder(name: str, folder: Path) -> Finding:
    text = f"{name}, {folder}"
    if folder.is_dir() and os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return ok("remote", text)
    if folder.is_dir():
        return problem("remote", f"{text} cannot be written", f"chmod u+rwx {folder}")
    above = _existing(folder)
    if above != folder and above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return ok("remote", f"{text}, which the first `dvc push` makes")
    mend = f"is its disk mounted? else: dvc remote modify {name} url FOLDER"
    return problem("remote", f"{text} cannot be made, because {above} {_hinders(above)}", mend)


def _hinders(path: Path) -> str:
    return "cannot be written" if path.is_dir() else "is no folder"


def _distant(repo: Repo, name: str, url: str) -> Finding:
    """Ask a server for the remote's folder; that it is not there yet is fine, that nobody answers is not."""
    text = f"{name}, {url}"
    look = f"credentials: dvc remote modify --local {name} …; then: dvc status -c"
    try:
        there = within(PATIENCE, lambda: _exists(repo, name))
    except (ImportError, RemoteMissingDepsError) as error:
        return problem("remote", f"{text}: {error}", f"pip install dvc-{urlparse(url).scheme}")
    except TooLong:
        return problem("remote", f"{text} did not answer within {PATIENCE:.0f} s", look)
    except Exception as error:
        return problem("remote", f"{text}: {' '.join(str(error).split()) or type(error).__name__}", look)
    return ok("remote", f"{text} answers" + ("" if there else "; it is empty"))


def _exists(repo: Repo, name: str) -> bool:
    remote = repo.cloud.get_remote(name)
    return remote.fs.exists(remote.path)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that there is."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def checks(repo: Repo) -> Iterator[Finding]:
    """Cache and remote."""
    yield check_links(repo)
    yield check_remote(repo)


STATUS_PATIENCE = 20.0
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
        return within(STATUS_PATIENCE, lambda: _outdated(repo))
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
        text = f"not compared: that takes more than {STATUS_PATIENCE:.0f} s (DVC hashes large files once)"
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
    """What was being written when a process was killed; see `tokenmill.core.files`."""
    for folder in WRITTEN:
        yield from (root / folder).glob(".*.tmp")
    for path in (root / RESUME_FOLDER).rglob(".*.tmp"):
        if not any(parent.name.endswith(".tmp") for parent in path.parents):
            yield path


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
