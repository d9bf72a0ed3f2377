"""Estimates of disk and memory, against free room and against a real run."""

import os
import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.doctor.small import opened, single
from tests.imports import ROOT
from tests.pipeline.project import Project as Repository
from tests.pipeline.project import change_params
from tokenmill.core.token_file import read_metadata
from tokenmill.doctor import disk
from tokenmill.doctor.finding import Finding, Project
from tokenmill.model.device import Compute
from tokenmill.schema import check_all


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """About 3 million parameters, 3 epochs."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    changes = {"model.n_layer": 4, "model.n_embd": 256, "train.epochs": 3, "tokenizer.vocab_size": 320}
    change_params(tmp_path / "params.yaml", changes)
    return Project(tmp_path, params=check_all(tmp_path / "params.yaml"))


@pytest.mark.parametrize(("fraction", "level"), [(0.5, "problem"), (1.05, "warning"), (2.0, "ok")])
def test_disk_must_hold_what_will_be_written(
    project: Project, fraction: float, level: str, monkeypatch: pytest.MonkeyPatch
):
    assert project.params
    text = disk.CONVERSATION_BYTES * project.params.sample.conversations
    needed = disk.estimate(project.params, text=text, tokens=None, outdated=project.outdated)
    usage: Any = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=int(fraction * needed.total)))
    finding = single(disk.check_disk, project)
    assert finding.level == level
    assert "checkpoints" in finding.text


def test_unlinked_cache_takes_its_own_disk(repository: Repository, project: Project):
    shm = Path("/dev/shm")  # noqa: S108 (a second file system)
    if not shm.is_dir() or shm.stat().st_dev == repository.root.stat().st_dev:
        pytest.skip("there is no second file system here")
    repository.run("dvc", "config", "cache.type", "hardlink,copy")
    repository.run("dvc", "cache", "dir", str(shm / f"tokenmill-test-{os.getpid()}"))
    checked = opened(repository)
    checked.params = project.params
    workspace, cache = disk.check_disk(checked)
    assert str(repository.root) in workspace.text
    assert str(shm) in cache.text


@pytest.mark.parametrize(("free", "level"), [(10_000, "problem"), (10**12, "ok")])
def test_memory_must_hold_the_model(project: Project, free: int, level: str, monkeypatch: pytest.MonkeyPatch):
    host = psutil.virtual_memory()
    monkeypatch.setattr("psutil.virtual_memory", lambda: host._replace(available=free))
    project.compute = Compute(torch.device("cpu"), torch.float32)
    assert single(disk.check_memory, project).level == level


def test_nothing_is_estimated_without_text(project: Project):
    change_params(project.root / "params.yaml", {"data.raw": "/nowhere"})
    project.params = check_all(project.root / "params.yaml")
    assert list(disk.check_disk(project)) == []


@pytest.mark.slow
def test_estimate_agrees_with_a_real_run(finished: Repository):
    def size(pattern: str) -> int:
        return sum(path.stat().st_size for path in finished.root.glob(pattern) if path.is_file())

    params = check_all(finished.root / "params.yaml")
    stages = ("clean", "tokenize", "unpack", "train")
    before = disk.estimate(params, text=size("data/raw/sample/*"), tokens=None, outdated=stages)
    tokens = read_metadata(finished.root / "data/tokens")
    after = disk.estimate(params, text=0, tokens=tokens, outdated=stages)
    assert (before.from_raw, after.from_raw) == (True, False)
    assert after.parts["tokens"] == size("data/tokens/*.bin")
    assert after.parts["weights of the epochs"] == pytest.approx(size("models/gpt/epoch-*/model.safetensors"), rel=0.05)
    newest = max((finished.root / ".resume").glob("*/step-*"))
    checkpoint = sum(path.stat().st_size for path in newest.glob("*.safetensors"))
    assert after.parts["checkpoints"] == pytest.approx(4 * checkpoint, rel=0.1)
    assert size(".resume/*/step-*/*.safetensors") <= after.parts["checkpoints"]
    for part, pattern in (("clean text", "clean"), ("packed tokens", "packed"), ("tokens", "tokens")):
        written = size(f"data/{pattern}/*")
        assert written / 3 < before.parts[part] < 3 * written, part


def test_nothing_to_write_is_well(project: Project):
    project.outdated = ()
    (project.root / "data/tokens").mkdir(parents=True)
    found: list[Finding] = list(disk.check_disk(project))
    assert [finding.level for finding in found] == ["ok"]
