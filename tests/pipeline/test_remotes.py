"""Remotes on servers: what a cut push leaves, and that a refusal is a sentence."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.project import Project
from tests.pipeline.remote_servers import S3, SSHD, sshd
from tests.runs.finished import make_project
from tokenmill.core.errors import UserError
from tokenmill.model.manifest import read_config
from tokenmill.runs.find import FETCHED, find_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="Windows has no kill -9"),
]


def repository(root: Path) -> Project:
    """A repository with a folder of 20 files under DVC."""
    project = Project.new(root)
    (root / "data").mkdir()
    for number in range(20):
        (root / "data" / f"{number}.txt").write_text(f"{number}\n" * 10_000)
    (root / ".dvc/config").write_text("[core]\n    analytics = false\n    remote = server\n")
    project.run("dvc", "add", "-q", "data")
    return project


def with_remote(project: Project, url: str, **settings: str) -> Project:
    """The project with a remote, in a file that git does not track."""
    lines = [f"{name} = {value}" for name, value in {"url": url, **settings}.items()]
    (project.root / ".dvc/config.local").write_text(
        "['remote \"server\"']\n" + "\n".join(lines) + "\n"
    )
    return project


def pulled(project: Project) -> str:
    """The digest of the data in a clone that pulled."""
    project.commit()
    clone = project.clone("clone")
    (clone.root / ".dvc/config.local").write_text((project.root / ".dvc/config.local").read_text())
    clone.run("dvc", "pull", "-q")
    return clone.digest("data")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    """The server, whose address and key are in the environment."""
    pytest.importorskip("dvc_s3", reason="pip install dvc-s3")
    names = {
        "ACCESS_KEY_ID": "right",
        "SECRET_ACCESS_KEY": "x",
        "DEFAULT_REGION": "us-east-1",
        "MAX_ATTEMPTS": "1",
    }
    with S3() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in (names | {"ENDPOINT_URL": server.url}).items():
            patch.setenv(f"AWS_{name}", value)
        yield server


@pytest.fixture(scope="module")
def on_s3(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return with_remote(
        repository(tmp_path_factory.mktemp("on-s3") / "repository"), "s3://bucket/store"
    )


@pytest.mark.parametrize(
    ("name", "value"), [("ACCESS_KEY_ID", "wrong"), ("ENDPOINT_URL", "http://127.0.0.1:9")]
)
def test_a_push_that_s3_refuses_is_a_sentence(
    on_s3: Project, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """With a wrong key, and with no server there."""
    monkeypatch.setenv(f"AWS_{name}", value)
    said = on_s3.run("dvc", "push", check=False)
    assert "ERROR: " in said
    assert "Traceback" not in said


def test_a_push_to_s3_that_was_cut_off_is_completed(on_s3: Project, s3: S3) -> None:
    s3.puts_until_stall = 7
    push = subprocess.Popen(
        ["dvc", "push", "-q"], cwd=on_s3.root, env=on_s3.env, start_new_session=True
    )
    assert s3.stalled.wait(60)
    os.killpg(push.pid, signal.SIGKILL)
    push.wait()
    s3.puts_until_stall = None
    said = on_s3.run("dvc", "push")
    assert "21 files pushed" not in said, "some were there"
    assert pulled(on_s3) == on_s3.digest("data")


def test_a_model_of_another_revision_comes_from_s3(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a wrong key, and with no server there, there is none."""
    project = make_project(tmp_path / "project")
    project.run("dvc", "remote", "add", "-q", "-d", "--local", "server", "s3://bucket/models")
    project.run("dvc", "push", "-q")
    project.commit()
    for gone in ("models", ".dvc/cache"):
        shutil.rmtree(project.root / gone)
    for name, value in {"ACCESS_KEY_ID": "wrong", "ENDPOINT_URL": "http://127.0.0.1:9"}.items():
        with monkeypatch.context() as patch:
            patch.setenv(f"AWS_{name}", value)
            with pytest.raises(UserError, match="cache nor in a remote"):
                find_model(project.root, rev="HEAD")
    found = find_model(project.root, rev="HEAD", epoch=2)
    assert read_config(found.folder)
    assert found.folder.is_relative_to(project.root / FETCHED)


@pytest.mark.skipif(SSHD is None, reason="there is no sshd; `apt install openssh-server` brings it")
def test_push_and_pull_over_ssh(tmp_path: Path) -> None:
    pytest.importorskip("dvc_ssh", reason="pip install dvc-ssh")
    project = repository(tmp_path / "repository")
    with sshd(tmp_path / "sshd") as (address, key):
        with_remote(project, f"{address}{tmp_path}/store", keyfile=str(key), allow_agent="false")
        project.run("dvc", "push")
        assert pulled(project) == project.digest("data")
        with_remote(
            project,
            f"{address}{tmp_path}/store",
            keyfile=str(tmp_path / "sshd/host"),
            allow_agent="false",
        )
        said = project.run("dvc", "push", check=False)
    assert "Permission denied" in said
    assert "Traceback" not in said
