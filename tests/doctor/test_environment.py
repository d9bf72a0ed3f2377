"""Checks of Python, packages, git and other runs."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import pytest

from tests.doctor.small import single
from tests.pipeline.project import Project as Repository
from tests.runs.unfinished import begin, stop
from tokenmill import git
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.doctor import environment
from tokenmill.doctor.finding import Finding, Project
from tokenmill.runs.find import Revision
from tokenmill.runs.table import find_runs


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_python_must_be_the_one_on_the_path(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert single(environment.check_python, project).level == "ok"
    (project.root / "python").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(project.root))
    finding = single(environment.check_python, project)
    assert (finding.level, finding.fix) == ("problem", environment.ACTIVATE)
    assert str(project.root / "python") in finding.text
    monkeypatch.setenv("PATH", os.devnull)
    assert single(environment.check_python, project).level == "problem"


@pytest.mark.parametrize("content", ["project = 3", "[project]\ndependencies = [3]", "\xff"])
def test_a_pyproject_of_another_form_is_a_problem(project: Project, content: str):
    (project.root / "pyproject.toml").write_text(content, encoding="latin-1")
    finding = single(environment.check_packages, project)
    assert (finding.level, finding.fix) == ("problem", "git checkout pyproject.toml")


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
def test_packages_are_those_of_pyproject(
    project: Project, pins: list[str] | None, level: str, named: str
):
    installed = importlib.metadata.version("rich")
    if pins is not None:
        listed = [pin.format(rich=installed) for pin in pins]
        (project.root / "pyproject.toml").write_text(f"[project]\ndependencies = {listed}\n")
    finding = single(environment.check_packages, project)
    assert finding.level == level
    assert named.format(rich=installed) in finding.text


def test_the_constraints_of_make_are_named_where_it_wrote_them(project: Project):
    """They have the PyTorch of the machine; constraints.txt has the pinned one."""
    (project.root / "pyproject.toml").write_text("[project]\ndependencies = ['rich==0.0.1']\n")
    finding = single(environment.check_packages, project)
    assert finding.fix == "pip install -c constraints.txt -e ."
    (project.root / ".venv").mkdir()
    (project.root / ".venv/constraints.txt").touch()
    finding = single(environment.check_packages, project)
    assert finding.fix == "pip install -c .venv/constraints.txt -e ."


def test_a_release_candidate_may_be_in_the_supported_versions(
    project: Project, monkeypatch: pytest.MonkeyPatch
):
    (project.root / "pyproject.toml").write_text("[project]\ndependencies = ['rich>=0.1']\n")
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2.0rc1")
    assert single(environment.check_packages, project).level == "ok"


def test_links_braces_and_warnings_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root = tmp_path / "a{b"
    (root / "reports").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    assert [found.name for found in environment.check_folder(Project(root))] == ["folder"]
    (root / "models").symlink_to(tmp_path / "elsewhere")
    _, link = environment.check_folder(Project(root))
    assert (link.name, link.level) == ("models/", "problem")
    subprocess.run(["sh", "-c", link.fix or "false"], cwd=root, check=True)
    assert [found.name for found in environment.check_folder(Project(root))] == ["folder"]
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    assert single(environment.check_variables, Project(root)).level == "warning"
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    assert not list(environment.check_variables(Project(root)))


def test_a_file_that_stands_for_a_module_of_python_is_named(tmp_path: Path):
    (tmp_path / "random.py").write_text("1 / 0")
    assert not list(environment.check_names(Project(tmp_path)))
    (tmp_path / "types.py").write_text("1 / 0")
    named = single(environment.check_names, Project(tmp_path))
    assert (named.name, named.level) == ("names", "problem")
    subprocess.run(["sh", "-c", named.fix or "false"], cwd=tmp_path, check=True)
    assert not list(environment.check_names(Project(tmp_path)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my_random.py", "my_types.py"]


def git_and_commit(project: Project) -> list[Finding]:
    """What is said of git, and of what is not committed."""
    return [*environment.check_git(project), *environment.check_commit(project)]


def test_results_in_no_commit_are_named(repository: Repository):
    project = Project(repository.root)
    assert [(found.name, found.level) for found in git_and_commit(project)] == [
        ("git", "ok"),
        ("commit", "ok"),
    ]
    (repository.root / "dvc.lock").write_text("schema: '2.0'\n")
    (repository.root / "metrics").mkdir()
    (repository.root / "metrics/new one.json").write_text("{}")
    (repository.root / "notes.txt").write_text("mine")
    _, commit = git_and_commit(project)
    assert commit == Finding(
        "warning",
        "commit",
        "not committed: dvc.lock, metrics/new one.json",
        "git add -A && git commit",
    )


def test_a_git_without_an_identity_is_named(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    project = Project(repository.root)
    for name in ("NAME", "EMAIL"):
        monkeypatch.delenv(f"GIT_COMMITTER_{name}", raising=False)
    assert single(environment.check_identity, project).name == "identity"
    repository.run("git", "config", "user.name", "A")
    assert single(environment.check_identity, project).name == "identity"
    repository.run("git", "config", "user.email", "a@b")
    assert not list(environment.check_identity(project))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not list(environment.check_identity(project)), "no git at all is another check's finding"


def test_a_lock_of_refs_is_seen_from_a_further_work_tree(repository: Repository, tmp_path: Path):
    other = tmp_path / "other"
    repository.run("git", "worktree", "add", "-q", str(other))
    for name in ("worktrees/other/index.lock", "refs/epoch-1.lock", "index.lock"):
        (repository.root / ".git" / name).touch()
    (lock,) = (one for one in environment.check_git(Project(other)) if one.name == "lock")
    assert lock.text.endswith(": epoch-1.lock, index.lock")
    assert "worktrees/other/index.lock" in str(lock.fix)


def test_deleted_results_and_left_locks_are_named(repository: Repository):
    (repository.root / "metrics").mkdir()
    (repository.root / "metrics/a b.json").write_text("{}")
    repository.commit()
    (repository.root / "metrics/a b.json").unlink()
    for name in ("refs/epoch-1", "index"):
        (repository.root / f".git/{name}.lock").touch()
    _, lock, commit = git_and_commit(Project(repository.root))
    assert (lock.name, lock.level) == ("lock", "problem")
    repository.run("sh", "-c", str(lock.fix).removeprefix("if no git runs: "))
    assert not list((repository.root / ".git").rglob("*.lock"))
    assert "dvc checkout" in (commit.fix or "")
    assert "a b.json" in commit.text


@pytest.mark.parametrize("state", ["on", "diverged"])
def test_what_a_training_deleted_is_not_to_be_made_again(repository: Repository, state: str):
    (repository.root / "metrics").mkdir()
    (repository.root / "metrics/train.json").write_text("{}")
    repository.commit()
    (repository.root / "metrics/train.json").unlink()
    begin(repository.root)
    if state == "diverged":
        stop(repository.root, diverged="in step 19")
    *_, commit = git_and_commit(Project(repository.root))
    assert "train.json" in commit.text
    expected = ("ok", None) if state == "on" else ("warning", environment.BACK)
    assert (commit.level, commit.fix) == expected


def test_a_ref_that_dvc_takes_for_an_experiment_is_removed(repository: Repository):
    repository.run("git", "update-ref", "refs/exps/broken", "HEAD")
    _, ref = environment.check_git(Project(repository.root))
    assert (ref.name, ref.level) == ("experiments", "problem")
    repository.run("sh", "-c", str(ref.fix))
    assert [each.name for each in environment.check_git(Project(repository.root))] == ["git"]


def test_of_many_files_four_are_named():
    assert environment.few(list("abcd")) == "a, b, c, d"
    assert environment.few(list("abcde")) == "a, b, c, d and 1 more"


def test_going_back_brings_all_of_the_last_commit(repository: Repository):
    root = repository.root
    repository.run("dvc", "config", "core.autostage", "true")
    (root / "dvc.yaml").write_text(
        "stages: {train: {cmd: cp params.yaml model, deps: [params.yaml], outs: [model]}}\n"
    )
    (root / "metrics").mkdir()
    (root / "metrics/train.json").write_text("{}")
    repository.repro()
    repository.commit()
    committed = repository.digest("params.yaml", "dvc.lock", "model", "metrics")
    # Of another size: git takes a file of the same second for unchanged, once DVC wrote the index
    repository.set(train__seed=10)
    repository.repro()
    assert repository.run("git", "diff", "--cached", "--name-only").split() == ["dvc.lock"]
    (root / "metrics/train.json").unlink()
    *_, commit = git_and_commit(Project(root))
    repository.run("sh", "-c", (commit.fix or "").partition("to go back: ")[2])
    assert repository.digest("params.yaml", "dvc.lock", "model", "metrics") == committed
    assert repository.run("git", "status", "--short") == ""


def test_own_files_of_a_project_in_a_folder_are_named(repository: Repository):
    inner = repository.root / "my project"
    inner.mkdir()
    (inner / "dvc.lock").touch()
    branch, commit = git_and_commit(Project(inner))
    assert branch.level == "ok"
    assert commit.text == "not committed: dvc.lock"


def test_a_project_that_git_ignores_is_to_be_moved(repository: Repository):
    inner = repository.root / "mill"
    inner.mkdir()
    (inner / "dvc.yaml").touch()
    (repository.root / ".gitignore").write_text("*\n")
    (finding,) = environment.check_git(Project(inner))
    assert (finding.level, str(finding.fix).split(";")[0]) == ("problem", "move it out")


def test_detached_head_and_missing_repository(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    repository.run("git", "branch", "-m", "my-branch")
    repository.run("git", "checkout", "-q", "--detach")
    lock = repository.root / ".dvc/tmp/rwlock"
    for damage in ("", "garbage"):
        lock.write_text(damage)
        (branch,) = environment.check_git(Project(repository.root))
        assert (branch.level, branch.fix) == ("warning", "git switch my-branch")
        assert "my-branch" not in branch.text
    repository.run("git", "branch", "other")
    (branch,) = environment.check_git(Project(repository.root))
    assert "my-branch, other" in branch.text
    monkeypatch.setattr(
        environment, "check_running", lambda _: Finding("warning", "runs", "at work here", None)
    )
    (branch,) = environment.check_git(Project(repository.root))
    assert (branch.level, branch.fix) == ("ok", None), "nobody should switch branches under a run"
    monkeypatch.undo()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    shutil.rmtree(repository.root / ".git")
    finding = single(environment.check_git, Project(repository.root))
    assert (finding.level, (finding.fix or "")[:8]) == ("problem", "git init")


def test_git_says_itself_why_it_fails(repository: Repository):
    (repository.root / ".git/config").write_text("[core\n")
    finding = single(environment.check_git, Project(repository.root))
    assert (finding.level, finding.fix) == ("problem", "git status")
    assert ".git/config" in finding.text


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files to another user"
)
def test_a_repository_of_another_user_is_told_from_others(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for path in (repository.root, repository.root / ".git"):
        os.chown(path, 4321, 4321)
    finding = single(environment.check_git, Project(repository.root))
    assert "safe.directory" in (finding.fix or "")
    trusting = tmp_path / "gitconfig"
    trusting.write_text("[safe]\n\tdirectory = *\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(trusting))
    assert git.failure_of_dvc(repository.root), "it does not read that file"
    finding = single(environment.check_git, Project(repository.root))
    assert finding.level == "problem"
    assert "git config --file ~/.gitconfig" in (finding.fix or "")
    with pytest.raises(UserError, match="doctor"):
        find_runs(repository.root, commits=1)
    with pytest.raises(UserError, match="doctor"):
        Revision(repository.root, "HEAD")


class TestRuns:
    """Other runs."""

    @pytest.fixture
    def other(self) -> Iterator["subprocess.Popen[bytes]"]:
        command = [sys.executable, "-c", "print(flush=True); input()", "dvc repro"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()  # until then the system may not know its command line
            yield process
            process.kill()

    def lock(self, root: Path, text: str) -> Path:
        path = root / ".dvc/tmp/rwlock"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    @pytest.mark.parametrize(
        ("folder", "where"),
        [
            ("", "here"),
            (".dvc/tmp/exps/tmpxyz", "in the copy tmpxyz"),
            (".dvc/tmp/exps/standalone/tmpabc", "in the experiment bonny-bani"),
        ],
    )
    def test_only_living_runs_are_named(
        self, folder: str, where: str, tmp_path: Path, other: "subprocess.Popen[bytes]"
    ):
        exps = tmp_path / ".dvc/tmp/exps"
        write_json(exps / "run/1f/1f.run", {"root_dir": str(exps / "tmpabc"), "name": "bonny-bani"})
        write_json(exps / "rwlock", {})
        holder = {"pid": other.pid, "cmd": "dvc repro"}
        write = {"write": {"models/gpt": holder}}
        read = {"read": {"data/tokens": [holder]}}
        for held in (write, read, write | read):
            self.lock(tmp_path / folder, json.dumps(held))
            finding = environment.check_running(tmp_path)
            assert (finding.level, finding.text) == (
                "warning",
                f"at work {where}: dvc repro (process {other.pid})",
            )
        other.kill()
        other.wait()
        assert environment.check_running(tmp_path).level == "ok"

    def test_another_process_with_the_id_of_a_dead_one_is_no_run(self, tmp_path: Path):
        with subprocess.Popen(["sleep", "60"]) as process:
            holder = {"pid": process.pid, "cmd": "dvc repro"}
            self.lock(tmp_path, json.dumps({"write": {"models/gpt": holder}}))
            level = environment.check_running(tmp_path).level
            process.kill()
        assert level == "ok"

    def test_a_lock_that_is_being_written_is_not_damaged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        path = self.lock(tmp_path, "")
        monkeypatch.setattr("time.sleep", lambda _: path.write_text("{}"))
        assert environment.check_running(tmp_path).level == "ok"

    @pytest.mark.parametrize(
        "text", ['{"write": ', "", "[]", '{"write": {"a": {"pid": -1, "cmd": "dvc"}}}', "[" * 9999]
    )
    def test_damaged_lock_is_to_be_removed(
        self, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(environment, "MOMENT", 0.0)
        path = self.lock(tmp_path, text)
        finding = environment.check_running(tmp_path)
        assert (finding.level, finding.fix) == ("problem", f"rm {quote(str(path))}")
