"""Git refs for epochs, in a real repository."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tokenmill.runs.epoch_refs import write_epoch_refs

EPOCHS: list[dict[str, dict[str, Any]]] = [
    {"train.json": {"epoch": n, "val_loss": 3.5 - n}, "eval.json": {"perplexity": 9.0 - n}}
    for n in (1, 2, 3)
]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def empty(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(here.parent))
    Path("params.yaml").write_text("train: {epochs: 3}\n")
    return here


@pytest.fixture
def repository(empty: Path) -> Path:
    """One commit, a staged change, a change that is not, and a file that git does not know."""
    git("init", "-q", "-b", "main")
    Path("a.txt").write_text("one\n")
    git("add", "a.txt", "params.yaml")
    git("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    Path("a.txt").write_text("two\n")
    git("add", "a.txt")
    Path("a.txt").write_text("three\n")
    Path("b.txt").write_text("new\n")
    return empty


def write(epochs: list[dict[str, dict[str, Any]]] = EPOCHS) -> list[str]:
    return write_epoch_refs(Path(), epochs, Path("params.yaml"))


def refs() -> list[str]:
    return git("for-each-ref", "--format=%(refname)").split()


def test_ref_of_each_epoch_holds_its_metrics(repository: Path):
    assert write() == ["epoch-1", "epoch-2", "epoch-3"]
    for number, epoch in enumerate(EPOCHS, start=1):
        for name, content in epoch.items():
            assert json.loads(git("show", f"epoch-{number}:metrics/{name}")) == content
        assert git("show", f"epoch-{number}:params.yaml") == "train: {epochs: 3}\n"
        pipeline = git("show", f"epoch-{number}:dvc.yaml")
        assert all(f"- metrics/{name}\n" in pipeline for name in epoch)
        files = git("ls-tree", "-r", "--name-only", f"epoch-{number}").split()
        assert files == ["dvc.yaml", "metrics/eval.json", "metrics/train.json", "params.yaml"]
        assert git("rev-parse", f"epoch-{number}^") == git("rev-parse", "HEAD")


def test_refs_leave_branch_index_and_files_alone(repository: Path):
    def everything() -> list[str]:
        index = (repository / ".git" / "index").read_bytes().hex()
        return [
            git("status", "--porcelain=v2", "--branch"),
            git("diff"),
            git("diff", "--cached"),
            git("log"),
            index,
        ]

    before = everything()
    write()
    assert everything() == before
    assert git("tag") == ""
    assert git("branch", "--format=%(refname)").split() == ["refs/heads/main"]


def test_same_metrics_give_the_same_commits(repository: Path):
    write()
    first = git("for-each-ref")
    write()
    assert git("for-each-ref") == first
    write([*EPOCHS[:2], {"train.json": {"epoch": 3, "val_loss": 0.0}}])
    changed = git("for-each-ref").splitlines()
    assert [a == b for a, b in zip(first.splitlines(), changed, strict=True)] == [
        True,
        True,
        False,
        True,
    ]
    who = "TokenMill tokenmill@localhost 2000-01-01T00:00:00+00:00"
    for kind in "ac":  # author and committer: no clock, no user
        assert (
            git("log", "-1", f"--format=%{kind}n %{kind}e %{kind}I", "epoch-3")
            .strip()
            .replace("Z", "+00:00")
            == who
        )


def test_only_refs_of_missing_epochs_are_removed(repository: Path):
    git("update-ref", "refs/epoch-12", "HEAD")
    git("update-ref", "refs/epoch-best", "HEAD")
    git("tag", "epoch-7")
    git("pack-refs", "--all")
    write()
    assert write(EPOCHS[:1]) == ["epoch-1"]
    assert refs() == ["refs/epoch-1", "refs/epoch-best", "refs/heads/main", "refs/tags/epoch-7"]


def test_refs_need_no_commit(empty: Path):
    git("init", "-q", "-b", "main")
    assert write() == ["epoch-1", "epoch-2", "epoch-3"]
    assert json.loads(git("show", "epoch-2:metrics/train.json")) == EPOCHS[1]["train.json"]
    assert git("rev-list", "--count", "epoch-2").strip() == "1"


def test_no_repository_no_refs(empty: Path):
    assert write() == []
