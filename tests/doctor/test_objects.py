"""`doctor --deep`: every damage of the workspace and of DVC's cache is found, and the command that
is named mends it."""

import os
import sqlite3
from pathlib import Path
from unittest.mock import Mock

import pytest
from dvc_data.hashfile.state import State

from tests.doctor.small import opened
from tests.pipeline.project import Project as Repository
from tokenmill.doctor import objects as objects_module
from tokenmill.doctor.finding import Finding
from tokenmill.doctor.objects import check_objects

PIPELINE = """
stages:
  make: {cmd: mkdir out && echo a > out/a && echo b > out/b && cp out/a m.json,
         outs: [out], metrics: [m.json: {cache: false}]}
"""


@pytest.fixture(scope="module")
def made_template(repository_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stage that ran, and a folder of `dvc add`; the cache is linked into the workspace."""
    repository = Repository(repository_template).copy(tmp_path_factory.mktemp("made") / "project")
    repository.run("dvc", "config", "cache.type", "hardlink,copy")
    (repository.root / "dvc.yaml").write_text(PIPELINE)
    (repository.root / "given").mkdir()
    (repository.root / "given/c").write_text("c\n")
    repository.run("dvc", "add", "-q", "given")
    repository.repro()
    repository.commit()
    return repository.root


@pytest.fixture
def made(made_template: Path, tmp_path: Path) -> Repository:
    """A copy in which workspace and cache are linked again."""
    repository = Repository(made_template).copy(tmp_path / "project")
    repository.run("dvc", "checkout", "-q", "--relink", "--force")
    return repository


def found(repository: Repository) -> dict[str, Finding]:
    findings = list(check_objects(opened(repository)))
    assert len({finding.name for finding in findings}) == len(findings)
    return {finding.name: finding for finding in findings}


def objects(repository: Repository) -> list[Path]:
    return sorted((repository.root / ".dvc/cache/files/md5").glob("??/*"))


def flip(path: Path) -> None:
    """Change a bit in place, so also in every link, and keep the time, as a bad disk does."""
    status = path.stat()
    path.chmod(0o644)
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def mend(repository: Repository, findings: dict[str, Finding]) -> None:
    for finding in findings.values():
        repository.run("sh", "-c", finding.fix or "false")


def test_what_is_whole_is_well(made: Repository):
    assert made.root.joinpath("out/a").stat().st_nlink == 2
    assert {name: finding.level for name, finding in found(made).items()} == {"files": "ok"}


@pytest.mark.slow
@pytest.mark.parametrize("has_remote", [False, True])
def test_every_flipped_object_is_found_and_mended(made: Repository, has_remote: bool):
    """Where no remote has it, nobody can make again what `dvc add` kept."""
    before = made.digest("out", "m.json")
    if has_remote:
        made.run("dvc", "push", "-q")
    for path in objects(made):
        flip(path)
    findings = found(made)
    assert {finding.level for finding in findings.values()} == {"problem"}
    assert ("dvc pull out" if has_remote else "dvc repro make") in (findings["out"].fix or "")
    if not has_remote:
        assert "dvc add given" in (findings.pop("given").fix or "")
    mend(made, findings)
    assert found(made).keys() == ({"files"} if has_remote else {"given"})
    assert made.digest("out", "m.json") == before


@pytest.mark.slow
def test_each_object_by_itself_is_found(made: Repository):
    """A file of a folder, the list of a folder, a copy of a metric, what `dvc add` keeps."""
    for path in objects(made):
        flip(path)
        names = {name: finding.text for name, finding in found(made).items()}
        assert any(f"{path.parent.name}/{path.name}" in text for text in names.values()), names
        flip(path)
    assert found(made).keys() == {"files"}


@pytest.mark.slow
def test_what_is_missing_is_named_with_what_brings_it(made: Repository):
    before = made.digest("out", "m.json")
    (made.root / "out/a").unlink()
    assert found(made)["out"] == Finding("warning", "out", "missing: out/a", "dvc checkout out")
    mend(made, found(made))
    (made.root / ".dvc/cache/files/md5").rename(made.root / "gone")
    assert {finding.fix for finding in found(made).values()} == {"dvc repro make", "dvc add given"}
    mend(made, found(made))
    assert found(made).keys() == {"files"}
    (made.root / "m.json").write_text("2")
    assert found(made)["m.json"].text == "not as recorded", "the finding has its name"
    assert found(made)["m.json"].fix == "rm -rf m.json && dvc repro make"
    mend(made, found(made))
    assert made.digest("out", "m.json") == before


@pytest.mark.slow
def test_a_damaged_remote_is_not_advised(made: Repository, tmp_path: Path):
    made.run("dvc", "push", "-q")
    for path in sorted((tmp_path / "remote").rglob("*")):
        if path.is_file():
            flip(path)
    for path in objects(made):
        if path.read_bytes() == b"b\n":
            flip(path)
    assert "dvc repro make" in (found(made)["out"].fix or "")


def test_objects_of_other_revisions_are_named(made: Repository):
    stray = made.root / ".dvc/cache/files/md5/00" / ("0" * 30)
    stray.parent.mkdir(parents=True)
    stray.write_text("text of another revision")
    (finding,) = found(made).values()
    assert finding.name == "objects"
    mend(made, found(made))
    assert not stray.exists()
    assert found(made).keys() == {"files"}


def ways(finding: Finding) -> list[str]:
    """The commands that keep an edit and that drop it; or the only one."""
    return (finding.fix or "").split("  # or, to drop the edit: ")


def relink(repository: Repository, kind: str) -> None:
    repository.run("dvc", "config", "cache.type", kind)
    repository.run("dvc", "checkout", "-q", "--relink", "--force")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["copy", "hardlink", "symlink"])
@pytest.mark.parametrize("is_kept", [True, False])
def test_who_edited_what_was_added_chooses(made: Repository, kind: str, is_kept: bool):
    """Through a link the edit is in the cache, too, or there only."""
    made.run("dvc", "push", "-q")
    relink(made, kind)
    edited, new = made.root / "given/c", made.root / "given/new"
    edited.chmod(0o644)
    edited.write_text("edited\n")
    new.write_text("new\n")
    finding = found(made)["given"]
    assert finding.level == ("warning" if kind == "copy" else "problem")
    keep, drop = ways(finding)
    made.run("sh", "-c", (finding.fix or keep) if is_kept else drop)
    assert edited.read_text() == ("edited\n" if is_kept else "c\n")
    assert new.read_text() == "new\n"
    assert found(made).keys() == {"files"}


@pytest.mark.slow
@pytest.mark.parametrize("has_remote", [True, False])
def test_an_edit_stays_where_the_cache_is_gone(made: Repository, has_remote: bool):
    if has_remote:
        made.run("dvc", "push", "-q")
    (made.root / ".dvc/cache/files/md5").rename(made.root / "gone")
    edited = made.root / "given/c"
    edited.unlink()
    edited.write_text("edited\n")
    keep, drop = ways(found(made)["given"])
    assert (keep, drop) == (
        "dvc add given",
        "dvc pull --force given" if has_remote else "bring given again, then: dvc add given",
    )
    made.run("sh", "-c", keep)
    assert edited.read_text() == "edited\n"
    assert found(made).keys() == {"out"}


@pytest.mark.slow
def test_what_the_workspace_has_whole_mends_the_cache(made: Repository):
    """Without a remote's help, though one has it, too."""
    made.run("dvc", "push", "-q")
    relink(made, "copy")
    before = made.digest("given", "given.dvc")
    listed = (made.root / "given.dvc").read_text().split("md5: ")[1][:32]
    for path in objects(made):
        if path.read_bytes() == b"c\n" or path.name.startswith(listed[2:]):
            flip(path)
    findings = found(made)
    assert (findings["given"].fix or "").endswith(" && dvc add given")
    mend(made, findings)
    assert found(made).keys() == {"files"}
    assert made.digest("given", "given.dvc") == before


@pytest.mark.slow
@pytest.mark.parametrize("has_list", [True, False])
def test_damage_of_what_was_added_is_no_edit(made: Repository, has_list: bool):
    """DVC does not look at a file whose size and time it knows, so it has to be told."""
    made.run("dvc", "push", "-q")
    relink(made, "copy")
    flip(made.root / "given/c")
    (made.root / "given/new").write_text("new\n")
    if not has_list:
        (made.root / ".dvc/cache/files/md5").rename(made.root / "gone")
    finding = found(made)["given"]
    assert finding.level == "problem"
    verb = "checkout" if has_list else "pull"
    assert finding.fix == f"touch given/c && dvc {verb} --force given/c"
    mend(made, {"given": finding})
    assert (made.root / "given/c").read_text() == "c\n"
    assert (made.root / "given/new").read_text() == "new\n"


@pytest.mark.slow
def test_what_dvc_ignores_is_no_change_of_a_folder(made: Repository):
    (made.root / ".dvcignore").write_text("*.swp\n")
    for folder in ("given", "out"):
        (made.root / folder / "a.swp").touch()
    (made.root / ".dvc/cache/files/md5").rename(made.root / "gone")
    assert {finding.fix for finding in found(made).values()} == {"dvc repro make", "dvc add given"}


def test_nothing_is_hashed_while_a_run_writes(made: Repository, monkeypatch: pytest.MonkeyPatch):
    at_work = Finding("warning", "runs", "at work", "wait")
    monkeypatch.setattr(objects_module, "check_running", lambda _: at_work)
    (made.root / "out/a").unlink()
    assert {name: finding.fix for name, finding in found(made).items()} == {"files": "wait"}


def test_a_damaged_index_of_dvc_hides_no_edit(made: Repository, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(State, "get", Mock(side_effect=sqlite3.DatabaseError("malformed")))
    (made.root / "given/c").unlink()
    (made.root / "given/c").write_text("edited\n")
    assert found(made)["given"].level == "warning"
