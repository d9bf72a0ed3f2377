"""Hash every file that dvc.lock names, in the workspace and in DVC's cache, and say what mends each
damage.

DVC trusts the size and the time of a file in the workspace, and in its cache any file that it has
made read-only: it links such a file into the workspace again, and keeps it when a stage writes the
same output anew. So a damaged file is removed first, in both places, for they are often one; then
`dvc pull` or the stage can bring it back.
"""

import hashlib
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from dvc.output import Output
from dvc.repo import Repo
from dvc_data.hashfile.hash_info import HashInfo
from dvc_data.hashfile.tree import Tree
from dvc_objects.fs.local import LocalFileSystem
from pydantic import BaseModel

from tokenmill.core.errors import UserError
from tokenmill.core.files import open_regular
from tokenmill.display import Progress
from tokenmill.doctor.dvc import REMOTE_TIMEOUT, with_timeout
from tokenmill.doctor.environment import Finding, Project, check_running, ok, problem, warning
from tokenmill.executor import ThreadExecutor
from tokenmill.formats.records import read_record
from tokenmill.words.units import size

BLOCK = 1 << 20
"""Bytes that a thread reads at a time."""

THREADS = min(8, os.cpu_count() or 1)
"""Files that are read at the same time."""

FOLDER = ".dir"
"""What ends the name of an object that lists the files of a folder, each with its MD5."""

OBJECT = re.compile(r"[0-9a-f]{32}(\.dir)?")
"""Matches the name of an object in DVC's cache: the MD5 of its content."""


class Entry(BaseModel):
    """A file in the list of a folder."""

    relpath: str
    md5: str


Digests = Mapping[Path, str | None]
"""The MD5 of files; None for what is missing."""


@dataclass(frozen=True)
class Recorded:
    """An output as dvc.lock, or a file of `dvc add`, records it."""

    out: Output
    name: str
    """Its path, relative to the project."""
    object: str
    """The name of its object in the cache."""
    files: Mapping[Path, str]
    """The MD5 of each file, by its path in the workspace; empty for a folder whose list is not in
    the cache."""

    @property
    def objects(self) -> list[str]:
        """All its objects in the cache."""
        return list(dict.fromkeys([self.object, *self.files.values()]))


@dataclass(frozen=True)
class Damage:
    """What is wrong with an output."""

    cache: list[Path]
    """Objects of the cache with other bytes than their names say."""
    objects: list[str]
    """The names of these, and of those that are missing."""
    workspace: list[Path]
    """Files that are missing, or have other bytes than dvc.lock says."""


def check_objects(project: Project) -> Iterator[Finding]:
    """Hash what dvc.lock names and DVC's cache holds. One finding for each damaged output, one for
    damaged objects of other revisions, or one that all is well."""
    repo = project.repo
    if repo is None:
        return
    if (running := check_running(project.root)).fix:
        yield warning("files", f"not hashed: {running.text}", running.fix)
        return
    cache = Path(repo.cache.local.path)
    objects = {path.parent.name + path.name: path for path in cache.glob("[0-9a-f][0-9a-f]/*")}
    objects = {name: path for name, path in objects.items() if OBJECT.fullmatch(name)}
    outputs = list(_outputs(repo, objects))
    workspace = [file for output in outputs for file in output.files or _below(output)]
    digests = _hash([*objects.values(), *workspace])
    bad = {name for name, path in objects.items() if digests[path] != name.removesuffix(FOLDER)}
    others = bad - {name for output in outputs for name in output.objects}
    findings = list(_findings(repo, outputs, digests, objects, bad))
    if others:
        # First: a stage that runs again may write one of them, too
        root = Path(repo.root_dir)
        paths = [_short(objects[name], root) for name in sorted(others)]
        text = f"damaged, of other revisions or in a folder named below: {', '.join(paths)}"
        yield problem("objects", text, f"rm -f {' '.join(map(quote, paths))}")
    yield from findings
    if not findings and not others:
        total = sum(path.stat().st_size for path in {*objects.values(), *workspace})
        yield ok("files", f"{len(digests):,} hashed ({size(total)}): all as recorded")


def _outputs(repo: Repo, objects: Mapping[str, Path]) -> Iterator[Recorded]:
    """The outputs of this project with a recorded MD5."""
    root = Path(repo.root_dir)
    for out in repo.index.outs:
        path = Path(out.fs_path)
        recorded = out.hash_info
        if not recorded or recorded.name != "md5" or not path.is_relative_to(root):
            continue
        name = str(recorded.value)
        files = {path: name}
        if name.endswith(FOLDER):
            files = _listed(path, objects[name]) if name in objects else {}
        yield Recorded(out, path.relative_to(root).as_posix(), name, files)


def _listed(folder: Path, path: Path) -> dict[Path, str]:
    """The files that a folder's object lists; none if it is damaged."""
    if _md5(path) != path.parent.name + path.name.removesuffix(FOLDER):
        return {}
    entries = read_record(path, list[Entry], way_out="remove it")
    return {folder / entry.relpath: entry.md5 for entry in entries}


def _below(output: Recorded) -> list[Path]:
    """The files of a folder whose list is not known."""
    return sorted(path for path in Path(output.out.fs_path).rglob("*") if path.is_file())


def _findings(
    repo: Repo,
    outputs: Iterable[Recorded],
    digests: Digests,
    objects: Mapping[str, Path],
    bad: Collection[str],
) -> Iterator[Finding]:
    """A finding for each damaged output, in an order in which no command removes what one before it
    brought back: outputs may share objects, and which ones a damaged list names is not known."""
    root = Path(repo.root_dir)
    removed = set[Path]()
    damaged = [(output, _damage(output, digests, objects, bad)) for output in outputs]
    damaged = [(output, damage) for output, damage in damaged if damage.objects or damage.workspace]
    for output, damage in sorted(
        damaged, key=lambda one: (bool(one[0].out.use_cache or one[1].workspace), not one[0].files)
    ):
        changed = [path for path in damage.workspace if os.path.lexists(path)]
        facts = {
            "not as recorded": [_short(path, root) for path in changed],
            "missing": [_short(path, root) for path in damage.workspace if path not in changed],
            "damaged in DVC's cache": [_short(path, root) for path in damage.cache],
            "not in DVC's cache": [name for name in damage.objects if name not in objects],
        }
        text = "; ".join(f"{what}: {', '.join(names)}" for what, names in facts.items() if names)
        first = [path for path in [*damage.cache, *changed] if path not in removed]
        removed.update(first)
        commands = (
            [f"rm -rf {' '.join(quote(_short(path, root)) for path in first)}"] if first else []
        )
        commands += filter(None, [_way_out(repo, output, damage)])
        if commands:  # else the command of another output has removed its copy
            find = problem if changed or damage.cache else warning
            yield find(output.name, text, " && ".join(commands))


def _short(path: Path, root: Path) -> str:
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def _damage(
    output: Recorded, digests: Digests, objects: Mapping[str, Path], bad: Collection[str]
) -> Damage:
    names = output.objects
    # Of an output that is not cached, DVC may keep a copy to bring it back with its stage
    wrong = [
        name for name in names if name in bad or (output.out.use_cache and name not in objects)
    ]
    workspace = [path for path, md5 in output.files.items() if digests[path] != md5]
    if not output.files and _folder_md5(output, digests) != output.object:
        workspace = [Path(output.out.fs_path)]
    return Damage([objects[name] for name in wrong if name in bad], wrong, workspace)


def _folder_md5(output: Recorded, digests: Digests) -> str:
    """The name of the object that lists the files of a folder as they are."""
    tree = Tree()
    folder = Path(output.out.fs_path)
    for path in _below(output):
        tree.add(path.relative_to(folder).parts, None, HashInfo("md5", digests[path]))
    tree.digest()
    return str(tree.oid)


def _way_out(repo: Repo, output: Recorded, damage: Damage) -> str:
    """The command that brings an output back, after what is damaged of it was removed; empty if
    nothing else is to be done."""
    if not (output.out.use_cache or damage.workspace):
        return ""
    if output.out.use_cache and not damage.objects:
        return f"dvc checkout {quote(output.name)}"
    if output.out.use_cache and _remote_has(repo, output.out, damage.objects):
        return f"dvc {'pull' if damage.workspace else 'fetch'} {quote(output.name)}"
    stage = output.out.stage
    if not stage.is_data_source:
        return f"dvc repro {quote(stage.name)}"
    if stage.is_import:
        return f"dvc update {quote(f'{output.name}.dvc')}"
    again = f"dvc add {quote(output.name)}"
    return f"bring {output.name} again, then: {again}" if damage.workspace else again


def _remote_has(repo: Repo, out: Output, names: Collection[str]) -> bool:
    """Whether a remote has these objects; in a folder, also with the right bytes."""

    def find() -> Any:
        remote = repo.cloud.get_remote_odb(out.remote)
        return remote if all(map(remote.exists, names)) else None

    try:
        remote = with_timeout(REMOTE_TIMEOUT, find)
    except Exception:  # each kind of server has its own
        return False
    if remote is None or not isinstance(remote.fs, LocalFileSystem):
        return remote is not None
    return all(_md5(Path(remote.oid_to_path(name))) == name.removesuffix(FOLDER) for name in names)


def _hash(paths: Iterable[Path]) -> dict[Path, str | None]:
    """The MD5 of files, several at a time. Files that are one, as by links into the cache, are read
    once."""
    found = dict[Path, str | None]()
    same = dict[tuple[int, int], list[Path]]()
    total = 0
    for path in dict.fromkeys(paths):
        try:
            status = path.stat()
        except OSError:
            found[path] = None
            continue
        names = same.setdefault((status.st_dev, status.st_ino), [])
        total += 0 if names else status.st_size
        names.append(path)
    lock = threading.Lock()
    with Progress("hash", total) as progress:

        def advance(count: int) -> None:
            with lock:
                progress.advance(count)

        executor = ThreadExecutor(threads=THREADS)
        digests = executor.map(lambda paths: _md5(paths[0], advance), same.values())
        for names, digest in zip(same.values(), digests, strict=True):
            found |= dict.fromkeys(names, digest)
    return found


def _md5(path: Path, advance: Callable[[int], None] = lambda _: None) -> str | None:
    """The MD5 of a file, which is how DVC names it; None if it cannot be read."""
    digest = hashlib.md5(usedforsecurity=False)
    block = bytearray(BLOCK)
    try:
        with open_regular(path) as file:
            while count := file.readinto(block):
                digest.update(memoryview(block)[:count])
                advance(count)
    except (OSError, UserError):
        return None
    return digest.hexdigest()
