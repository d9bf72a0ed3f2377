"""What of a store no manifest of a project names is listed, and removed only when asked for."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.imports import ROOT
from tests.pipeline.project import Project
from tests.tokens.test_store import clean_into, first_object, pack_into
from tokenmill.cli.main import main
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.doctor import environment
from tokenmill.doctor.environment import lock_file
from tokenmill.doctor.store import compare
from tokenmill.formats import shards
from tokenmill.formats.store import Store
from tokenmill.tokens.unpack import unpack


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose cache has data of an earlier commit, and whose work tree has newer data; in
    the store are both, and shards of somebody else."""
    folder = tmp_path_factory.mktemp("store")
    place = folder / "place"
    project = Project.new(place / "project")
    (project.root / "data").mkdir()
    (place / "drive").mkdir()
    shutil.copy(ROOT / "params.yaml", project.root)
    store = str(place / "drive")
    clean_into(project.root / "data", store)
    pack_into(project.root / "data", store)
    project.run("dvc", "add", "-q", "data/clean", "data/packed")
    shutil.copytree(project.root / "data", place / "earlier")
    for name in ("clean", "packed"):
        shutil.rmtree(project.root / "data" / name)
    clean_into(project.root / "data", store, shard_bytes=2000)
    clean_into(place / "elsewhere", store, shard_bytes=500)
    return place.rename(folder / "kept")


@pytest.fixture
def project(kept: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same for each test, and where it was made, for manifests name the store."""
    place = Path(shutil.copytree(kept, kept.with_name("place")))
    monkeypatch.chdir(place / "project")
    yield place / "project"
    shutil.rmtree(place)


def test_what_a_manifest_names_stays(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = str(project.parent / "drive")
    store = Store(url)
    (project.parent / "drive" / "notes.txt").write_text("not of the store")
    before = store.names()
    main(["doctor", "--store", url])
    assert store.names() == before
    found = compare(store, url, project)
    others = shards.shards(project.parent / "elsewhere" / "clean")
    assert len(found.unused) == len({shard.sha256() for shard in others} - _own(project))
    assert found.unused
    assert not found.missing
    listed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("unused: ")]
    assert listed == [f"unused: {name}" for name in found.unused]
    main(["doctor", "--store", url, "--remove"])
    assert store.names().keys() == before.keys() - found.unused.keys()
    assert list(shards.batches(project / "data" / "clean"))
    assert list(shards.batches(project.parent / "earlier" / "clean"))
    unpack(project.parent / "earlier" / "packed", project.parent / "tokens")


def _own(project: Path) -> set[str]:
    """The hashes of the shards of both commits."""
    folders = (project / "data" / "clean", project.parent / "earlier" / "clean")
    return {shard.sha256() for folder in folders for shard in shards.shards(folder)}


def test_what_is_missing_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = first_object(project / "data" / "clean")
    name = f"{file.sha256[:2]}/{file.sha256}"
    url = str(project.parent / "drive")
    shard = project.parent / "drive" / name
    shard.write_bytes(shard.read_bytes()[:-1])
    assert compare(Store(url), f"{url}/", project).missing == [name], "it was cut off"
    Store(url).remove(name)
    main(["doctor", "--store", url])
    assert f"missing: {name}" in capsys.readouterr().out.splitlines()
    other = str(project.parent / "elsewhere")
    assert compare(Store(other), other, project).missing == [], "no manifest names that store"


def test_without_git_no_branch_is_asked_for(project: Path) -> None:
    url = str(project.parent / "drive")
    before = compare(Store(url), url, project)
    shutil.rmtree(project / ".git")
    config = project / ".dvc/config"
    config.write_text(f"{config.read_text()}\n[core]\n    no_scm = True\n")
    assert compare(Store(url), url, project) == before


def test_nothing_is_removed_if_a_manifest_is_not_known(project: Path) -> None:
    url = str(project.parent / "drive")
    before = Store(url).names()
    cache = project / ".dvc/cache/files/md5"
    for md5 in _manifests(cache):
        (cache / md5[:2] / md5[2:]).unlink()
    with pytest.raises(UserError, match="DVC's cache lacks"):
        compare(Store(url), url, project)
    assert Store(url).names() == before


def test_nothing_is_removed_while_an_experiment_runs(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that begins while the store is listed."""
    url = str(project.parent / "drive")
    names = Store.names
    before = names(Store(url))

    def listed(store: Store) -> dict[str, int]:
        lock = lock_file(project / ".dvc/tmp/exps/tmpxyz")
        write_json(lock, {"write": {"data/clean": {"pid": os.getpid(), "cmd": "dvc"}}})
        return names(store)

    monkeypatch.setattr(Store, "names", listed)
    monkeypatch.setattr(environment, "_is_dvc", lambda _: True)
    with pytest.raises(SystemExit):
        main(["doctor", "--store", url, "--remove"])
    assert names(Store(url)) == before


def test_nothing_is_removed_if_a_branch_is_not_fetched(project: Path) -> None:
    url = str(project.parent / "drive")
    before = Store(url).names()
    md5 = YAML(typ="safe").load(project / "data/clean.dvc")["outs"][0]["md5"]
    _commit_run(project, files=1, md5=md5)
    _commit_run(project, files=3, md5="0" * 32 + ".dir")  # its folder holds the shards
    assert compare(Store(url), url, project).unread == []
    (project / ".dvc/cache/files/md5" / md5[:2] / md5[2:]).unlink()
    assert len(compare(Store(url), url, project).unread) == 1
    with pytest.raises(SystemExit):
        main(["doctor", "--store", url, "--remove"])
    assert Store(url).names() == before


def test_nothing_is_removed_if_git_cannot_tell(project: Path) -> None:
    url = str(project.parent / "drive")
    before = Store(url).names()
    (project / ".git/refs/heads/broken").write_text("1" * 40 + "\n")
    with pytest.raises(UserError, match="rev-list"):
        compare(Store(url), url, project)
    assert Store(url).names() == before


def test_nothing_is_removed_if_a_lock_is_damaged(project: Path) -> None:
    url = str(project.parent / "drive")
    _commit_run(project, files=1, md5="a")
    (project / "dvc.lock").write_text("<<<<<<< HEAD\nschema: '2.0'\n=======\n>>>>>>> other\n")
    Project(project).commit()
    with pytest.raises(UserError, match=r"refs/heads/branch-a.*commit a whole dvc\.lock"):
        compare(Store(url), url, project)
    (project / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    Project(project).commit()
    assert compare(Store(url), url, project).unread == []


def _commit_run(project: Path, *, files: int, md5: str) -> None:
    """Commit to a branch of its own what a run records of data/clean with so many files. That
    runtime.store has been unset since tells nothing."""
    outs = [{"path": "data/clean", "md5": md5, "nfiles": files}]
    lock = {"schema": "2.0", "stages": {"clean": {"cmd": "true", "outs": outs}}}
    (project / "dvc.lock").write_text(json.dumps(lock))
    Project(project).run("git", "switch", "-q", "-c", f"branch-{md5}")
    Project(project).run("git", "add", "dvc.lock")
    Project(project).run("git", "commit", "-q", "-m", "a run")


def test_a_listing_of_objects_in_s3_is_passed_over(project: Path) -> None:
    url = str(project.parent / "drive")
    before = compare(Store(url), url, project)
    listing = project / ".dvc/cache/files/md5/00" / ("0" * 30 + ".dir")
    listing.parent.mkdir(exist_ok=True)
    listing.write_text(json.dumps([{"relpath": "store.json", "etag": "0" * 32}]))
    assert compare(Store(url), url, project) == before


def _manifests(cache: Path) -> list[str]:
    """The MD5 of each store.json in DVC's cache."""
    listings = [json.loads(path.read_text()) for path in cache.glob("*/*.dir")]
    entries = [entry for listing in listings for entry in listing]
    return [entry["md5"] for entry in entries if entry["relpath"] == "store.json"]


def test_without_a_store_there_is_nothing_to_compare(project: Path) -> None:
    with pytest.raises(SystemExit, match=r"runtime\.store is null"):
        main(["doctor", "--store"])
