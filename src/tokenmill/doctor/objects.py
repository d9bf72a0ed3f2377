"""Hash every file that dvc.lock names, in the workspace and in DVC's cache, and say what mends each
damage.

DVC trusts the size and the time of a file in the workspace, and in its cache any file that it has
made read-only: it links such a file into the workspace again, and keeps it when a stage writes the
same output anew. So a damaged file is removed first, in both places, for they are often one; then
`dvc pull` or the stage can bring it back.

What a user gave with `dvc add` is removed from the cache only: nobody can make it again, and where
it differs from what is recorded, the user may have edited it. They choose.
"""

import hashlib
import os
import sqlite3
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

from tokenmill.core.errors import UserError
from tokenmill.core.files import open_regular
from tokenmill.doctor.dvc import REMOTE_TIMEOUT, with_timeout
from tokenmill.doctor.environment import check_running
from tokenmill.doctor.finding import Finding, Project, ok, problem, warning
from tokenmill.dvc_lock import FOLDER, OBJECT, listed
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.progress import Progress
from tokenmill.words.units import size

BLOCK = 1 << 20
"""Bytes that a thread reads at a time."""

THREADS = min(8, os.cpu_count() or 1)
"""Files that are read at the same time."""

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
    below: list[Path]
    """The same files; in such a folder those that are there, without what `.dvcignore` names."""

    @property
    def objects(self) -> list[str]:
        """All its objects in the cache."""
        return list(dict.fromkeys([self.object, *self.files.values()]))

    @property
    def is_given(self) -> bool:
        """Whether a user gave it with `dvc add`, so that nobody else has it."""
        return self.out.stage.is_data_source and not self.out.stage.is_import


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
    workspace = [file for output in outputs for file in output.below]
    digests = _hash([*objects.values(), *workspace])
    bad = {name for name, path in objects.items() if digests[path] != name.removesuffix(FOLDER)}
    others = bad - {name for output in outputs for name in output.objects}
    findings = list(_findings(repo, outputs, digests, objects, bad))
    if others:
        # First: a stage that runs again may write one of them, too
        root = Path(repo.root_dir)
        paths = [_short(objects[name], root) for name in sorted(others)]
        text = f"damaged, of other revisions or in a folder named below: {', '.join(paths)}"
        yield problem("objects", text, _removal([objects[name] for name in others], outputs, root))
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
        there = map(Path, repo.dvcignore.find(out.fs, out.fs_path))
        below = list(files) or sorted(path for path in there if path.is_file())
        yield Recorded(out, path.relative_to(root).as_posix(), name, files, below)


def _listed(folder: Path, path: Path) -> dict[Path, str]:
    """The files that a folder's object lists; none if it is damaged."""
    if _md5(path) != path.parent.name + path.name.removesuffix(FOLDER):
        return {}
    files = listed(path, way_out="remove it")  # not this very command
    return {folder / name: md5 for name, md5 in files.items()}


def _findings(
    repo: Repo,
    outputs: Collection[Recorded],
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
        text = "; ".join(
            what if names == [output.name] else f"{what}: {', '.join(names)}"
            for what, names in facts.items()
            if names
        )
        unseen = _unseen(repo, output, digests) if output.is_given and damage.workspace else []
        wrong = damage.cache if output.is_given else [*damage.cache, *changed]
        first = [path for path in wrong if path not in removed]
        removed.update(first)
        commands = [_removal(first, outputs, root)] if first else []
        commands += [_command("touch", unseen, root)] if unseen else []
        ways = _ways_out(repo, output, damage, unseen) or ([""] if commands else [])
        if ways:  # else the command of another output has removed its copy
            ways = [" && ".join(filter(None, [*commands, way])) for way in ways]
            is_damage = damage.cache or unseen or (changed and not output.is_given)
            find = problem if is_damage else warning
            yield find(output.name, text, "  # or, to drop the edit: ".join(ways))


def _removal(paths: Collection[Path], outputs: Iterable[Recorded], root: Path) -> str:
    """The command that removes files. Where the only copy of what a user gave is one of them, with
    links of the workspace into the cache, it takes the place of the link first."""
    targets = {path.resolve() for path in paths}
    links = [
        path
        for output in outputs
        if output.is_given
        for path in output.below
        if path.is_symlink() and path.resolve() in targets
    ]
    unprotect = f"{_command('dvc unprotect', links, root)} && " if links else ""
    return unprotect + _command("rm -rf", paths, root)


def _command(command: str, paths: Iterable[Path], root: Path) -> str:
    return f"{command} {' '.join(quote(_short(path, root)) for path in paths)}"


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


def _unseen(repo: Repo, output: Recorded, digests: Digests) -> list[Path]:
    """The files of which DVC, by their size and time, knows another MD5. So nobody edited them, and
    DVC reads them again only if their time is new."""
    try:
        known = {path: repo.state.get(str(path), output.out.fs)[1] for path in output.below}
    except sqlite3.Error:  # its index is damaged; it looks at every file then
        return []
    return [path for path, info in known.items() if info and info.value != digests[path]]


def _folder_md5(output: Recorded, digests: Digests) -> str:
    """The name of the object that lists the files of a folder as they are."""
    tree = Tree()
    folder = Path(output.out.fs_path)
    for path in output.below:
        tree.add(path.relative_to(folder).parts, None, HashInfo("md5", digests[path]))
    tree.digest()
    return str(tree.oid)


def _ways_out(repo: Repo, output: Recorded, damage: Damage, unseen: list[Path]) -> list[str]:
    """The commands that bring an output back, after what is damaged of it was removed; none if
    nothing else is to be done. Of what a user edited, the first one keeps the edit, the second one
    drops it."""
    if not (output.out.use_cache or damage.workspace):
        return []
    stage = output.out.stage
    add = f"dvc add {quote(output.name)}"
    if output.is_given and not damage.workspace:
        return [add]
    back = _kept(repo, output, damage, unseen or damage.workspace)
    if not stage.is_data_source:
        return [back or f"dvc repro {quote(stage.name)}"]
    if stage.is_import:
        return [back or f"dvc update {quote(f'{output.name}.dvc')}"]
    back = back or f"bring {output.name} again, then: {add}"
    return [back] if unseen or not os.path.lexists(output.out.fs_path) else [add, back]


def _kept(repo: Repo, output: Recorded, damage: Damage, files: Iterable[Path]) -> str:
    """The command that brings an output from the cache or a remote; empty if neither has it. Of
    what a user gave it brings these files only, and what was added beside them stays."""
    if not output.out.use_cache:
        return ""
    if damage.objects and not _remote_has(repo, output.out, damage.objects):
        return ""
    verb = "checkout" if not damage.objects else "pull" if damage.workspace else "fetch"
    if output.is_given and os.path.lexists(output.out.fs_path):
        return _command(f"dvc {verb} --force", files, Path(repo.root_dir))
    return f"dvc {verb} {quote(output.name)}"


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
