"""DVC's side: the repository, links between cache and workspace, the remote."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

from dvc.exceptions import DvcException, NotDvcRepoError
from dvc.repo import Repo
from dvc.scm import SCMError
from dvc_objects.fs import generic
from dvc_objects.fs.errors import RemoteMissingDepsError
from dvc_objects.fs.local import localfs

from tokenmill.doctor.finding import Finding, ok, problem, warning
from tokenmill.doctor.patience import TooLong, within

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
