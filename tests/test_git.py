"""git answers, fails with its own message, or is missing; each is told apart."""

import os
import shutil
import subprocess
from pathlib import Path
from shlex import quote

import pytest
from dvc.repo.experiments import refs

from tokenmill import git
from tokenmill.core.errors import UserError
from tokenmill.runs.epoch_refs import write_epoch_refs
from tokenmill.stage import report_errors

BESIDE_EXPERIMENTS = sorted(
    {
        name
        for name in vars(refs).values()
        if isinstance(name, str) and name.startswith("refs/exps/")
    }
    - refs.ITER_SKIP_NAMESPACES
)
"""Every ref that DVC keeps for itself below refs/exps, by its own list."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    root = tmp_path / "repository"
    root.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=root, check=True)
    (root / "a.txt").write_text("größe\n", encoding="utf-8")
    (root / "empty").touch()
    git.execute(root, "add", ".")
    git.execute(root, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    git.execute(root, "tag", "v1")
    for ref in (
        f"refs/exps/12/{'3' * 38}/blest-jube",
        f"refs/exps/12/{'3' * 38}/apt-oak",
        f"refs/exps/45/{'6' * 38}/apt-oak",
        *BESIDE_EXPERIMENTS,
        "refs/epoch-1",
    ):
        git.execute(root, "update-ref", ref, "HEAD")
    return root


def test_revisions_have_the_names_that_users_type(repository: Path) -> None:
    found = [(one.name, one.baseline) for one in git.experiments(repository)]
    older, newer = "12" + "3" * 38, "45" + "6" * 38
    assert found == [("apt-oak", older), ("apt-oak", newer), ("blest-jube", older)]
    head = git.execute(repository, "rev-parse", "HEAD").strip()
    assert {one.commit for one in git.experiments(repository)} == {head}
    assert git.revisions(repository) == ["main", "v1", "apt-oak", "blest-jube", "epoch-1"]


def test_names_keep_the_white_space_that_git_allows(repository: Path) -> None:
    names = ["a\u00a0b", "c\u2028d", "e\u3000f", "g\u0085h"]
    for name in names:
        git.execute(repository, "update-ref", f"refs/heads/{name}", "HEAD")
        git.execute(repository, "update-ref", f"refs/exps/78/{'9' * 38}/{name}", "HEAD")
    assert {*names, "main"} <= set(git.revisions(repository))
    found = [one.name for one in git.experiments(repository) if one.baseline.startswith("78")]
    assert sorted(found) == sorted(names)


@pytest.mark.parametrize("ref", ["a", "a/b/c/d", "zz/zz/x", "12/34/x", f"12/{'3' * 38}/a/b"])
def test_a_ref_that_dvc_cannot_read_is_named_with_the_way_out(repository: Path, ref: str) -> None:
    for one in git.experiments(repository):
        name = f"refs/exps/{one.baseline[:2]}/{one.baseline[2:]}/{one.name}"
        git.execute(repository, "update-ref", "-d", name)
    git.execute(repository, "update-ref", f"refs/exps/{ref}", "HEAD")
    with pytest.raises(UserError, match=f"git update-ref -d refs/exps/{ref}`"):
        git.experiments(repository)


def test_only_commits_that_are_here_exist(repository: Path) -> None:
    head = git.execute(repository, "rev-parse", "HEAD").strip()
    assert git.commits_here(repository, [head, "1" * 40]) == {head}
    assert git.commits_here(repository, []) == set()


def test_content_is_read_from_a_revision(repository: Path) -> None:
    (repository / "a.txt").write_text("changed")
    assert git.content(repository, "HEAD", Path("a.txt")) == "größe\n".encode()
    assert git.content(repository, "v1", Path("empty")) == b""
    assert git.content(repository, "HEAD", Path("b.txt")) == b"", "there is none"


def test_a_lock_that_a_killed_git_left_is_named_with_the_way_out(repository: Path) -> None:
    lock = repository / ".git/refs/epoch-1.lock"
    lock.touch()
    with pytest.raises(UserError) as refused:
        git.execute(repository, "update-ref", "refs/epoch-1", "HEAD~0", "0" * 40)
    assert str(refused.value).endswith(f"rm {quote(str(lock))}")


def test_input_reaches_git(repository: Path) -> None:
    blob = git.execute(repository, "hash-object", "-w", "--stdin", stdin="é").strip()
    assert git.execute(repository, "cat-file", "blob", blob) == "é"


def test_gits_environment_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"GIT_CONFIG_GLOBAL": "/a", "GIT_AUTHOR_NAME": "Ada", "GIT_COMMITTER_EMAIL": "a@b"}
    others = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE")
    for name, value in (kept | dict.fromkeys(others, "/other")).items():
        monkeypatch.setenv(name, value)
    found = git.own_environment()
    assert kept.items() <= found.items()
    assert not found.keys() & set(others)
    assert found["PATH"] == os.environ["PATH"]


def test_the_environment_leads_to_no_other_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a hook of git, which sets GIT_DIR and GIT_INDEX_FILE."""
    other = tmp_path / "other"
    shutil.copytree(repository, other)
    git.execute(other, "update-ref", "refs/heads/theirs", "HEAD")
    for name, place in (
        ("GIT_DIR", other / ".git"),
        ("GIT_WORK_TREE", other),
        ("GIT_INDEX_FILE", other / ".git/index"),
    ):
        monkeypatch.setenv(name, str(place))
    assert "refs/heads/theirs" not in git.references(repository, "refs/heads")
    params = repository / "params.yaml"
    params.touch()
    write_epoch_refs(repository, [{"train.json": {"loss": 1}}] * 2, params)
    assert git.references(repository, "refs/epoch-*") == ["refs/epoch-1", "refs/epoch-2"]
    assert git.references(other, "refs/epoch-*") == ["refs/epoch-1"]


def test_a_command_leads_dvc_to_no_other_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    report_errors(lambda: None)
    assert "GIT_DIR" not in os.environ


def test_failure_of_git_carries_its_message(repository: Path) -> None:
    assert git.ask(repository, "rev-parse", "--verify", "nowhere") is None
    with pytest.raises(UserError, match=r"git rev-parse .*single revision"):
        git.execute(repository, "rev-parse", "--verify", "nowhere")


def test_outside_a_repository_there_is_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git.references(tmp_path) == []
    assert git.ask(tmp_path, "status") is None


def test_missing_git_is_a_user_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for call in (git.execute, git.ask):
        with pytest.raises(UserError, match="no `git` on the PATH"):
            call(tmp_path, "status")
