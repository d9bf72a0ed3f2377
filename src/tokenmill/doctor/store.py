"""What is in a store of shards, and which of it a project's manifests name: those in the work tree,
and those in DVC's cache, which belong to other commits and experiments. Of a branch, a tag or an
experiment of another clone, the cache may lack them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dvc.repo import Repo
from dvc.scm import NoSCM

from tokenmill import git
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.params import Section, load
from tokenmill.dvc_lock import LOCK, Lock, listed
from tokenmill.executors.params import ExecutorParams
from tokenmill.formats.records import read_record
from tokenmill.formats.store import MANIFEST, Manifest, Store, object_name
from tokenmill.formats.token_file import METADATA_FILE, TokenMetadata

FOLDERS = {paths.CLEAN: 1, paths.PACKED: 2}
"""The folders that hold a manifest if their shards are in a store, and the number of files in each
then. What `runtime.store` was when a folder was committed does not tell: it reruns no stage."""

NAME = re.compile(r"[0-9a-f]{2}/(\.?[0-9a-f]{64}\.[0-9a-f]{32}(\.tmp)?|[0-9a-f]{64})")
"""Matches the name of a shard in a store, and of what a killed task leaves beside it."""


class Params(Section):
    """The section of params.yaml that names the store."""

    runtime: ExecutorParams


@dataclass(frozen=True)
class Contents:
    """What is in a store, each with its bytes."""

    used: dict[str, int]
    """What a manifest of the project names."""
    unused: dict[str, int]
    """What none names."""
    missing: list[str]
    """What a manifest in the work tree names, and is not there in full length."""
    unread: list[str]
    """The commits at branches, tags and experiments whose manifests are not in DVC's cache, so that
    what they need looks unused. A run of one shard may have had none."""


def configured_store() -> str:
    """The store that params.yaml names.

    Raises:
        UserError: it names none.
    """
    if found := load(Params).runtime.store:
        return found
    raise UserError(
        "runtime.store is null; name a store: `tokenmill doctor --store s3://bucket/prefix`."
    )


def compare(store: Store, url: str, root: Path) -> Contents:
    """Compare what is in `store`, whose address is `url`, with the manifests of the project at
    `root`.

    Raises:
        UserError: the store cannot be reached, or a manifest cannot be read, so that what it names
            is not known.
    """
    there = {name: size for name, size in store.names().items() if NAME.fullmatch(name)}
    here = dict[str, int]()
    named = set[str]()
    with Repo(str(root)) as repo:
        cache = Path(repo.cache.local.path)
        unread = [] if isinstance(repo.scm, NoSCM) else list(_unread(root, cache))
    for folder in FOLDERS:
        if (path := root / folder / MANIFEST).exists():
            metadata = root / folder / METADATA_FILE
            place, sizes = _named(path, metadata if metadata.exists() else None)
            named |= sizes.keys()
            here |= sizes if place.rstrip("/") == url.rstrip("/") else {}
    for path, metadata in _cached(cache):
        named |= _named(path, metadata)[1].keys()
    return Contents(
        used={name: size for name, size in there.items() if name in named},
        unused={name: size for name, size in there.items() if name not in named},
        missing=sorted(name for name, size in here.items() if there.get(name) != size),
        unread=unread,
    )


def _named(path: Path, metadata: Path | None) -> tuple[str, dict[str, int]]:
    """The store that a manifest names, and its shards with their bytes. Those of data/packed are in
    its `metadata`."""
    manifest = read_record(path, Manifest)
    shards = read_record(metadata, TokenMetadata).shards if metadata else manifest.shards
    return manifest.store, {object_name(shard.sha256): shard.size for shard in shards}


def _unread(root: Path, cache: Path) -> Iterator[str]:
    """The commits that HEAD, branches, tags and experiments point to, and that may have used a
    store, of whose folders DVC's cache lacks the list.

    Raises:
        UserError: git cannot tell, or a dvc.lock is damaged.
    """
    for commit in git.execute(root, "rev-list", "--no-walk", "--all").split():
        lock = _lock(root, commit)
        written = [entry for run in lock.stages.values() for entry in run.outs]
        listings = [
            entry.md5
            for entry in written
            for folder, files in FOLDERS.items()
            # With other files it holds the shards
            if entry.path == folder.as_posix() and entry.nfiles in (None, files)
        ]
        if not all((cache / md5[:2] / md5[2:]).exists() for md5 in filter(None, listings)):
            yield commit


def _lock(root: Path, commit: str) -> Lock:
    try:
        return Lock.read(root, commit)
    except UserError:
        refs = ", ".join(git.references(root, f"--points-at={commit}")) or "HEAD"
        raise UserError(
            f"{LOCK} of commit {commit[:12]} ({refs}) is damaged, as by marks of a conflict, so "
            f"what it needs of the store is not known; commit a whole {LOCK} on top of it, or "
            "remove the branch, tag or experiment."
        ) from None


def _cached(cache: Path) -> Iterator[tuple[Path, Path | None]]:
    """The manifests in DVC's cache, each with the metadata of its folder."""
    for listing in sorted(cache.glob("[0-9a-f][0-9a-f]/*.dir")):
        hashes = listed(listing)
        if hashes.keys() not in ({MANIFEST}, {MANIFEST, METADATA_FILE}):
            continue
        found = {name: cache / md5[:2] / md5[2:] for name, md5 in hashes.items()}
        for path in found.values():
            if not path.exists():
                raise UserError(
                    f"DVC's cache lacks {path}, so what its commit needs of the store is not "
                    "known; `dvc fetch --all-commits` brings it, `dvc gc` removes what names it."
                )
        yield found[MANIFEST], found.get(METADATA_FILE)
