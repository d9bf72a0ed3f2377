"""The files of this checkout as a real project: real git, real DVC, a very small model."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from ruamel.yaml import YAML

from tests.pipeline.project import Project, change_params

ROOT = Path(__file__).resolve().parents[2]

SMALL: dict[str, Any] = {
    "sample.conversations": 200,
    "tokenizer.vocab_size": 320,
    "tokenize.val_fraction": 0.1,
    "model.n_layer": 1,
    "model.n_head": 2,
    "model.n_embd": 16,
    "model.context_length": 32,
    "train.epochs": 2,
    "train.batch_size": 8,
    "train.schedule.type": "constant",
    "train.schedule.warmup_steps": 5,
    "train.validation_sequences": 16,
    "evaluate.max_new_tokens": 8,
    "runtime.device": "cpu",
    "runtime.checkpoint.every_steps": 7,
}


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout's files as a repository with a small model, before anything ran."""
    folder = tmp_path_factory.mktemp("template") / "project"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file() and name != "dvc.lock" and not name.startswith(("metrics/", "reports/")):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    change_params(folder / "params.yaml", SMALL)
    content = YAML().load(folder / "params.yaml")
    content["evaluate"]["prompts"] = content["evaluate"]["prompts"][:2]
    YAML().dump(content, folder / "params.yaml")
    project = Project(folder)
    project.run("git", "init", "-q", "-b", "main")
    project.commit()
    return folder


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Project:
    """A fresh copy where nothing has run."""
    return Project(template).copy(tmp_path / "project")


@pytest.fixture(scope="session")
def finished_template(template: Path, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A copy where the pipeline ran once, quietly, and was committed; `first_repro` beside it is what DVC said.

    Whoever comes first makes it for all processes of this test run.
    """
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "finished"
    with FileLock(f"{folder}.lock"):
        if not (folder / "first_repro").exists():
            shutil.rmtree(folder, ignore_errors=True)
            project = Project(template).copy(folder / "project")
            said = project.repro()
            project.commit()
            (folder / "first_repro").write_text(said)
    return folder / "project"


@pytest.fixture
def finished(finished_template: Path, tmp_path: Path) -> Project:
    """A fresh copy of a project whose pipeline has run."""
    return Project(finished_template).copy(tmp_path / "project")
