"""Checks of Python, packages, parameters, text, git and the compiler."""

import importlib.metadata
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from tests.doctor.small import single
from tests.imports import ROOT
from tests.pipeline.project import Project as Repository
from tests.pipeline.project import change_params
from tokenmill.doctor import checks
from tokenmill.doctor.finding import Finding, Project
from tokenmill.model.device import Compute
from tokenmill.schema import check_all


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A folder with params.yaml and nothing else."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return Project(tmp_path, params=check_all(tmp_path / "params.yaml"))


def test_python_must_be_the_one_on_the_path(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert single(checks.check_python, project).level == "ok"
    (project.root / "python").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(project.root))
    finding = single(checks.check_python, project)
    assert (finding.level, finding.fix) == ("problem", checks.ACTIVATE)
    assert str(project.root / "python") in finding.text
    monkeypatch.setenv("PATH", os.devnull)
    assert single(checks.check_python, project).level == "problem"


@pytest.mark.parametrize(
    ("pins", "level", "named"),
    [
        (["rich=={rich}"], "ok", "all 1"),
        (["rich>=0.1,<999"], "ok", "all 1"),
        (["rich<0.1,>=0.0.1"], "warning", "rich {rich} instead of <0.1,>=0.0.1"),
        (["rich==0.0.1"], "warning", "rich {rich} instead of 0.0.1"),
        (["rich==0.0.1", "never-heard-of-it==1.0"], "problem", "never-heard-of-it"),
        (["rich=?"], "problem", "pyproject.toml"),
        (None, "problem", "pyproject.toml"),
    ],
)
def test_packages_are_those_of_pyproject(project: Project, pins: list[str] | None, level: str, named: str):
    installed = importlib.metadata.version("rich")
    if pins is not None:
        listed = [pin.format(rich=installed) for pin in pins]
        (project.root / "pyproject.toml").write_text(f"[project]\ndependencies = {listed}\n")
    finding = single(checks.check_packages, project)
    assert finding.level == level
    assert named.format(rich=installed) in finding.text


def test_every_problem_of_params_is_listed(project: Project):
    change_params(project.root / "params.yaml", {"model.n_layer": 0, "train.batch_size": 0})
    project.params = None
    finding = single(checks.check_params, project)
    assert finding.level == "problem"
    assert "model.n_layer (0)" in finding.text
    assert "train.batch_size (0)" in finding.text
    assert project.params is None


def with_raw(project: Project, raw: str) -> Finding:
    change_params(project.root / "params.yaml", {"data.raw": raw})
    project.params = check_all(project.root / "params.yaml")
    return single(checks.check_text, project)


def test_text_must_be_there(project: Project):
    assert single(checks.check_text, project).level == "ok", "the built-in text"
    missing = with_raw(project, "/nowhere/at/all")
    assert missing.level == "problem"
    assert "data.raw (/nowhere/at/all)" in missing.text


def test_text_outside_needs_an_absolute_path(project: Project, tmp_path: Path):
    texts = tmp_path.parent / f"{tmp_path.name}-texts"
    texts.mkdir()
    (texts / "a.txt").write_text("12345")
    finding = with_raw(project, f"../{texts.name}")
    assert (finding.level, finding.fix) == ("warning", f"dvc exp run -S data.raw={texts.resolve()}")
    assert with_raw(project, str(texts)) == Finding("ok", "text", f"{texts}: 1 files, 5 bytes")
    assert project.raw
    assert [source.size for source in project.raw.sources] == [5]


def test_results_in_no_commit_are_named(repository: Repository):
    project = Project(repository.root)
    assert [(found.name, found.level) for found in checks.check_git(project)] == [("git", "ok"), ("commit", "ok")]
    (repository.root / "dvc.lock").write_text("schema: '2.0'\n")
    (repository.root / "metrics").mkdir()
    (repository.root / "metrics/new one.json").write_text("{}")
    (repository.root / "notes.txt").write_text("mine")
    _, commit = checks.check_git(project)
    assert commit == Finding(
        "warning", "commit", "not committed: dvc.lock, metrics/new one.json", "git add -A && git commit"
    )


def test_a_git_without_an_identity_is_named(repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    project = Project(repository.root)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("NAME", "EMAIL"):
        monkeypatch.delenv(f"GIT_COMMITTER_{name}", raising=False)
    assert single(checks.check_identity, project).name == "identity"
    repository.run("git", "config", "user.name", "A")
    repository.run("git", "config", "user.email", "a@b")
    assert not list(checks.check_identity(project))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not list(checks.check_identity(project)), "no git at all is another check's finding"


def test_deleted_results_and_left_locks_are_named(repository: Repository):
    (repository.root / "metrics").mkdir()
    (repository.root / "metrics/a b.json").write_text("{}")
    repository.commit()
    (repository.root / "metrics/a b.json").unlink()
    (repository.root / ".git/refs/epoch-1.lock").touch()
    _, lock, commit = checks.check_git(Project(repository.root))
    assert (lock.name, lock.level) == ("lock", "problem")
    assert "epoch-1.lock" in (lock.fix or "")
    assert "dvc checkout" in (commit.fix or "")
    assert "a b.json" in commit.text


def test_detached_head_and_missing_repository(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    repository.run("git", "checkout", "-q", "--detach")
    branch, _ = checks.check_git(Project(repository.root))
    assert branch.level == "warning"
    monkeypatch.setattr(checks.dvc, "check_running", lambda _: Finding("warning", "runs", "at work here", None))
    branch, _ = checks.check_git(Project(repository.root))
    assert (branch.level, branch.fix) == ("ok", None), "nobody should switch branches under a run"
    monkeypatch.undo()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    shutil.rmtree(repository.root / ".git")
    assert single(checks.check_git, Project(repository.root)).level == "problem"


@pytest.mark.parametrize(
    ("setting", "device", "level"),
    [
        ("on", "cpu", "problem"),
        ("on", "cuda", "problem"),
        ("auto", "cuda", "warning"),
        ("auto", "cpu", None),
        ("off", "cuda", None),
    ],
)
def test_compiler_is_checked_where_one_is_wanted(
    project: Project, setting: str, device: str, level: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", os.devnull)
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    change_params(project.root / "params.yaml", {"runtime.compile": setting})
    project.params = check_all(project.root / "params.yaml")
    project.compute = Compute(torch.device(device), torch.float32)
    assert [found.level for found in checks.check_compiler(project)] == ([level] if level else [])


def test_checks_without_parameters_find_nothing(tmp_path: Path):
    for check in (checks.check_text, checks.check_device, checks.check_compiler):
        assert list(check(Project(tmp_path))) == []
