"""Checks of DVC: the repository, its cache and remote, and the stages that are outdated."""

import contextlib
import logging
import os
import sqlite3
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from shlex import quote
from threading import Thread
from typing import Any, Literal, TypeVar
from urllib.parse import unquote, urlparse

from dvc import __version__
from dvc.exceptions import DvcException, NotDvcRepoError
from dvc.lock import LockError
from dvc.parsing import ResolveError
from dvc.repo import Repo, lock_repo
from dvc.repo.graph import get_subgraph_of_nodes
from dvc.scm import SCMError
from dvc_objects.fs import generic
from dvc_objects.fs.errors import RemoteMissingDepsError
from dvc_objects.fs.local import localfs

from tokenmill import git
from tokenmill.core import paths
from tokenmill.core.errors import first_line
from tokenmill.core.files import DISK_FULL, DVC_OBJECT
from tokenmill.core.params import PARAMS_FILE, is_url
from tokenmill.doctor.environment import KEEP_ONE_SIDE, lock_file, unmerged
from tokenmill.doctor.finding import Finding, Pipeline, Project, ok, problem, warning
from tokenmill.dvc_lock import Lock
from tokenmill.runs.consistency import TRAIN_AGAIN, falsely_recorded, own_manifest
from tokenmill.runs.under_way import unfinished

REMOTE_TIMEOUT = 10.0
"""Seconds within which a remote has to answer."""

STATUS_TIMEOUT = 20.0
"""Seconds within which DVC has to compare files. It takes about one, but more for large files that
it has not hashed yet."""

MISSING = ("deleted", "not in cache")
"""The words of `dvc status` for a file that is only missing."""

FETCH = "dvc pull && dvc repro"
"""Fetches what the remote has, and runs the rest."""

T = TypeVar("T")


def with_timeout(seconds: float, work: Callable[[], T]) -> T:
    """Return what `work` returns, or raise what it raises. It runs in a daemon thread, which does
    not keep the process alive.

    Raises:
        TimeoutError: `work` takes longer.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # the caller handles the error
            result.set_exception(error)

    Thread(target=run, daemon=True).start()
    return result.result(seconds)


OWN_FILE = ".dvc/config.local"
"""The file of DVC's that git does not have."""

READ_BY_DVC = ("dvc.yaml", PARAMS_FILE.name, "dvc.lock", ".dvcignore", ".gitignore")
READ_BY_DVC += (".dvc/config", OWN_FILE, ".dvc/.gitignore")
"""The files that DVC reads of a project, be they pipes or devices without an end."""


def check_repository(project: Project) -> Iterator[Finding]:
    """Check that the project is a DVC repository whose files DVC can read."""
    for name in READ_BY_DVC:
        path = project.root / name
        if os.path.lexists(path) and not path.is_file():
            fix = f"rm -rf {name}" + f" && git checkout {name}" * (name != OWN_FILE)
            yield problem("dvc", f"{name} is no regular file", fix)
            return
    logging.getLogger("dvc").setLevel(logging.CRITICAL)  # its messages become findings
    try:
        repo = Repo(str(project.root))
    except NotDvcRepoError:
        text = f"{project.root.resolve()} is not a DVC repository"
        yield problem("dvc", text, "git checkout .dvc, or: dvc init")
    except sqlite3.Error as error:
        yield problem("dvc", f"DVC cannot keep its index of hashes: {error}", "ulimit -a; df -h")
    except Exception as error:  # those of dulwich, too, by which DVC reads git
        fix = "look into .dvc/config, .dvc/config.local, .git/config and git status"
        yield problem("dvc", _said(error, "DVC cannot read git"), fix)
    else:
        if targets := lost(project.root):
            yield _lost(targets)
            return
        project.repo = repo
        yield ok("dvc", f"{__version__}, cache in {repo.cache.local.path}")


def lost(root: Path) -> dict[str, Path]:
    """The folders of outputs with links into DVC's cache whose targets are gone, as on a drive that
    is not mounted, each with one of these targets. DVC fails at such links."""
    found = dict[str, Path]()
    for name in paths.WRITTEN:
        targets = (link.readlink() for link in _links(root / name) if not link.exists())
        if target := next((one for one in targets if DVC_OBJECT.fullmatch(one.as_posix())), None):
            found[name] = target
    return found


def _links(folder: Path) -> Iterator[Path]:
    """The links in a folder, at any depth. Folders name them, so that no file is looked at."""
    folders = [os.fspath(folder)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield Path(entry.path)
                elif entry.is_dir():
                    folders.append(entry.path)


def _lost(targets: dict[str, Path]) -> Finding:
    target = next(iter(targets.values()))
    cache = target.parent.parent
    if cache.exists():
        text, first = f"to files that its cache does not have, as {target}", ""
    else:
        text, first = f"into {cache}, which is not there", "mount it again; or: "
    links = f"find -L {' '.join(targets)} -type l -lname '*/files/md5/*' -exec rm {{}} +"
    fix = f"{first}{links}; then dvc pull or dvc repro"
    return problem("dvc", f"{', '.join(targets)}: links of DVC lead {text}", fix)


def check_cache(project: Project) -> Iterator[Finding]:
    """Check that the cache is whole and writable, and that its files are not stored twice."""
    if project.repo is None:
        return
    folder = Path(project.repo.cache.local.path)
    yield from _of_letters(Path(project.repo.cache.local_cache_dir))
    linked, failure = links(project.repo)
    if failure:
        look = "sudo chown -R $USER" if isinstance(failure, PermissionError) else "df -h"
        text = f"{folder} cannot be written ({failure.strerror or failure})"
        yield problem("cache", text, f"{look} {quote(str(folder))}")
    elif empty := list(empty_results(Path(project.repo.stage_cache.cache_dir))):
        text = (
            "DVC was killed while it stored a result, and left an empty folder, at which it ends "
            "with «join() argument must be str»"
        )
        yield problem("cache", text, f"rmdir {' '.join(quote(str(path)) for path in empty)}")
    elif linked:
        yield ok("cache", "linked into the workspace: no output lies on the disk twice")
    else:
        text = f"no links between {folder} and the workspace: every output lies on the disk twice"
        fix = "dvc config cache.type hardlink,symlink,copy; and a cache on the same disk: "
        yield warning("cache", text, f"{fix}dvc cache dir .dvc/cache")


def _of_letters(cache: Path) -> Iterator[Finding]:
    """Find a cache of which DVC (3.67, `TempDirExecutor.init_cache`) cannot tell the copy of an
    experiment."""
    if str(cache).isascii():
        return
    other = "/path/to/cache"
    move = f"mv {quote(str(cache))} {other} && " if cache.exists() else ""
    text = (
        f"{cache} has letters beyond ASCII, with which the queue and `dvc exp run --temp` fail: "
        "«'ascii' codec can't encode»"
    )
    yield warning("cache", text, f"{move}dvc cache dir --local {other}; or move the project")


def empty_results(runs: Path) -> Iterator[Path]:
    """Yield the empty folders of DVC's run-cache. DVC makes the folder of a stage's results before
    it writes into it, and its reader (3.67, `StageCache._load`) takes no empty one."""
    for folder in runs.glob("??/*/"):
        if not any(folder.iterdir()):
            yield folder


def links(repo: Repo) -> tuple[bool, OSError | None]:
    """Whether files of the cache appear in the workspace without a second copy, and why that cannot
    be tried, as on a full disk."""
    kinds = [kind for kind in repo.cache.local.cache_types if kind != "copy"]
    cache = existing(Path(repo.cache.local.path))
    inside = str(Path(repo.tmp_dir or repo.root_dir) / "link")
    try:
        return bool(generic.test_links(kinds, localfs, str(cache), localfs, inside)), None
    except OSError as error:
        return False, error


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def check_remote(project: Project) -> Iterator[Finding]:
    """Check that `dvc push` and `dvc pull` would reach the default remote."""
    if project.repo is None:
        return
    config = project.repo.config
    name = config["core"].get("remote")
    if not name:
        text = "none: other people and machines cannot `dvc pull` what you train"
        yield warning("remote", text, "dvc remote add -d NAME URL")
    elif name not in config["remote"]:
        names = ", ".join(config["remote"]) or "none"
        text = f"{name} is the default, but the remotes are: {names}"
        yield problem("remote", text, "dvc remote default NAME")
    else:
        url = str(config["remote"][name]["url"])
        if url.startswith("file://"):
            folder = quote(unquote(url.removeprefix("file://")))
            text = f"{name}, {url}: DVC (3.67) takes it for a path in the current folder"
            yield problem("remote", text, f"dvc remote modify {quote(name)} url {folder}")
        elif is_url(url):
            yield _server_remote(project.repo, name, url)
        else:
            yield _folder_remote(name, Path(url))


def _folder_remote(name: str, folder: Path) -> Finding:
    nearest = existing(folder)
    made = "" if nearest == folder else ", which the first `dvc push` makes"
    move = f"dvc remote modify {quote(name)} url FOLDER"
    if not nearest.is_dir():
        fix = f"is a disk not mounted? else: {move}"
        return problem("remote", f"{name}, {folder}: {nearest} is not a folder", fix)
    if os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        return ok("remote", f"{name}, {folder}{made}")
    if nearest == folder and os.access(folder, os.R_OK | os.X_OK):
        text = "can be read, not written: `dvc pull` works, `dvc push` fails"
        fix = f"push as somebody who may write there; or elsewhere: {move}"
        return warning("remote", f"{name}, {folder} {text}", fix)
    reason = "cannot be read" if nearest == folder else "cannot be written"
    fix = f"chmod u+rwx {quote(str(nearest))}; or is a disk not mounted? else: {move}"
    return problem("remote", f"{name}, {folder}: {nearest} {reason}", fix)


def _server_remote(repo: Repo, name: str, url: str) -> Finding:
    """Ask a server for the remote's folder, which need not exist yet."""
    text = f"{name}, {url}"
    credentials = f"credentials: dvc remote modify --local {name} …; then: dvc status -c"

    def exists() -> bool:
        remote = repo.cloud.get_remote(name)
        return remote.fs.exists(remote.path)

    try:
        is_there = with_timeout(REMOTE_TIMEOUT, exists)
    except (ImportError, RemoteMissingDepsError) as error:
        return problem("remote", f"{text}: {error}", f"pip install dvc-{urlparse(url).scheme}")
    except TimeoutError:
        said = f" did not answer within {REMOTE_TIMEOUT:.0f} s"
    except Exception as error:  # each kind of server has its own
        said = f": {' '.join(str(error).split()) or type(error).__name__}"
    else:
        return ok("remote", f"{text} answers" + ("" if is_there else "; it is empty"))
    return problem("remote", text + said, credentials)


def check_pipeline(project: Project) -> Iterator[Finding]:
    """Check that the workspace is what dvc.lock records."""
    repo = project.repo
    if repo is None:
        return
    if not (project.root / "dvc.yaml").exists():
        yield problem("pipeline", "dvc.yaml is missing", "git checkout dvc.yaml")
        return
    try:
        pipeline = project.pipeline = with_timeout(STATUS_TIMEOUT, lambda: _compared(repo))
    except Exception as error:  # DVC's own mistakes on a damaged file, too
        if project.params or not isinstance(error, ResolveError):  # else `check_params` has said it
            yield _not_compared(repo, error)
        return
    found = {
        "to fetch": pipeline.unfetched,
        "not in DVC's cache": pipeline.uncached,
        "to run": pipeline.outdated,
    }
    text = "; ".join(f"{what}: {', '.join(names)}" for what, names in found.items() if names)
    if text:
        run = unfinished(project.root)
        if may_be_fetched(project.root):
            text = f"{text} (or `{FETCH}`, if the remote has what dvc.lock names)"
        yield warning("pipeline", text, way_on(pipeline, run.way_on if run else "dvc repro"))
    else:
        yield ok("pipeline", "every stage is up to date")


def may_be_fetched(root: Path) -> bool:
    """Whether dvc.lock names results and none that takes long is here, as in a fresh clone."""
    return (root / "dvc.lock").exists() and nothing_ran(root)


def nothing_ran(root: Path) -> bool:
    """Whether no result of a stage that takes long is here."""
    return not any((root / path).exists() for path in (paths.CLEAN, paths.TOKENS, paths.MODEL))


def way_on(pipeline: Pipeline, command: str) -> str:
    """The commands that bring the pipeline up to date, the last of them `command` if a stage is to
    run. Before it, what `dvc add` tracks is fetched, without which DVC would refuse it, and what
    was made is put into the cache, without which it would be made again."""
    before = {"dvc pull": pipeline.unfetched, "dvc commit": pipeline.uncached}
    named = [" ".join([what, *map(quote, names)]) for what, names in before.items() if names]
    return " && ".join([*named, *[command] * bool(pipeline.outdated or pipeline.unfetched)])


def check_frozen(project: Project) -> Iterator[Finding]:
    """Check that no stage is frozen, so that DVC runs none of its changes."""
    frozen = project.pipeline.frozen if project.pipeline else {}
    if not frozen:
        return
    by_dvc = [name for name, can in frozen.items() if can]
    by_hand = [name for name in frozen if name not in by_dvc]
    ways = [" ".join(["dvc unfreeze", *map(quote, by_dvc)])] * bool(by_dvc)
    ways += [f"remove `frozen: true` of {', '.join(by_hand)} in dvc.yaml"] * bool(by_hand)
    text = f"frozen: {', '.join(frozen)}; what changed there is not run"
    yield warning("frozen", text, "; then ".join(ways))


def check_model(project: Project) -> Iterator[Finding]:
    """Check that the model was trained with the parameters that dvc.lock records with it."""
    if project.pipeline is None or "train" in project.pipeline.outdated:
        return
    if phrase := falsely_recorded(own_manifest(project.root), Lock.read(project.root)):
        yield problem("model", phrase, TRAIN_AGAIN)


def _not_compared(repo: Repo, error: Exception) -> Finding:
    if isinstance(error, LockError):
        text = "not compared while DVC is at work here"
        return warning("pipeline", text, "wait for the other DVC command")
    if isinstance(error, TimeoutError):
        text = (
            f"not compared: that takes more than {STATUS_TIMEOUT:.0f} s "
            "(DVC hashes large files once)"
        )
        return warning("pipeline", text, "dvc status")
    if isinstance(error, sqlite3.DatabaseError):
        text = f"DVC's index of hashes is damaged ({error}); DVC makes it again"
        return problem("pipeline", text, f"rm -r {quote(str(repo.site_cache_dir))}")
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        text = f"not compared: DVC cannot write here ({error.strerror})"
        return problem("pipeline", text, f"df -h {quote(repo.root_dir)}")
    return problem("pipeline", _said(error, "DVC cannot read it"), _repair(repo, error))


def _said(error: Exception, trouble: str) -> str:
    """An error on one line; one that is not meant for users, after what the trouble is."""
    if isinstance(error, DvcException | SCMError):
        return " ".join(str(error).split())
    return f"{trouble} ({type(error).__name__}: {first_line(error)})"


def _repair(repo: Repo, error: Exception) -> str:
    """The command that repairs the file that an error names: dvc.lock or DVC's own lock, cut off by
    a kill or a full disk."""
    if "RWLock-file" in str(error):
        return f"rm {quote(str(lock_file(Path(repo.root_dir))))}"
    if "dvc.lock" not in str(error):
        if not isinstance(error, DvcException):
            return "dvc status -v, which says where; git diff shows what changed"
        return "correct dvc.yaml or params.yaml as it says; git diff shows what changed"
    if unmerged(Path(repo.root_dir)):
        return KEEP_ONE_SIDE
    is_kept = git.ask(Path(repo.root_dir), "cat-file", "-e", "HEAD:./dvc.lock") is not None
    return "git checkout dvc.lock" if is_kept else "rm dvc.lock"


def _compared(repo: Repo) -> Pipeline:
    """The workspace compared with dvc.lock. Outdated are the stages that changed and those after
    them, in order. If only the output of a stage is missing, running it gives the same output, so
    the stages after it do not run.

    Raises:
        DvcException: dvc.yaml, dvc.lock or params.yaml cannot be read.
    """
    # When it unlocks, DVC forgets dvc.yaml and dvc.lock
    with lock_repo(repo), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from the library of DVC's graph
        said = repo.status()
        graph = repo.index.graph
        stages = repo.index.stages
        uncached = [one for one in stages if _is_uncached(one, said.get(one.addressing, []))]
    made = {str(out) for stage in stages for out in stage.outs}
    reasons = {
        stage: list(_reasons(said.get(stage.addressing, []), made))
        for stage in stages
        if stage not in uncached
    }
    found = {stage for stage in stages if reasons.get(stage)}
    passing = {stage for stage in stages if not _always_writes_the_same(stage)}
    changed = {stage for stage in found & passing if "changed" in reasons[stage]}
    if changed:  # of none DVC's function would return all
        running = graph.subgraph(one for one in passing if one in changed or not one.frozen)
        found.update(get_subgraph_of_nodes(running, [*changed], downstream=True))
    sources = [stage for stage in stages if stage.is_data_source]
    frozen = [stage for stage in stages if stage.frozen and stage not in sources]
    return Pipeline(
        outdated=_names(one for one in stages if one in found and one not in sources),
        unfetched=_names(one for one in sources if "missing" in reasons.get(one, [])),
        uncached=_names(one for one in uncached if one not in found),
        frozen={
            name: not stage.raw_data.parametrized for stage in frozen for name in _names([stage])
        },
    )


def _names(stages: Iterable[Any]) -> list[str]:
    """The names of stages, and the places of what `dvc add` tracks, by which commands of DVC know
    them."""
    found = list[str]()
    for stage in stages:
        if stage.is_data_source:
            found += map(str, stage.outs)
        else:
            found.append(getattr(stage, "name", stage.addressing))
    return found


def _is_uncached(stage: Any, said: Collection[Any]) -> bool:
    """Whether the outputs of a stage are as dvc.lock records them, and all that `dvc status` says
    of it is that the cache lacks them, as after `dvc repro --no-commit`. It says the same of
    outputs that changed or are not here."""
    match said:
        case [{"changed outs": states}] if {*states.values()} == {"not in cache"}:
            return not any(out.workspace_status() for out in stage.outs)
    return False


def _always_writes_the_same(stage: Any) -> bool:
    """Whether this is the stage that checks params.yaml. No other stage runs because it did."""
    return [str(out) for out in stage.outs] == [paths.CHECKED.as_posix()]


def _reasons(said: Iterable[Any], made: Collection[str]) -> Iterator[Literal["changed", "missing"]]:
    """The reasons why a stage is to run, from what `dvc status` says of it. `made` are the outputs
    of all stages."""
    for change in said:
        for kind, states in (
            change.items() if isinstance(change, dict) else [(change, {"": "changed"})]
        ):
            for name, state in states.items():
                if state not in MISSING or (kind == "changed deps" and name not in made):
                    yield "changed"
                elif kind == "changed outs":
                    yield "missing"
