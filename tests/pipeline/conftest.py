"""The files of this checkout as a real project: real git, real DVC, a very small model."""

import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from tests.pipeline.project import Project, small_project


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout's files as a repository with a small model, before anything ran."""
    return small_project(tmp_path_factory.mktemp("template") / "project").root


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Project:
    """A fresh copy where nothing has run."""
    return Project(template).copy(tmp_path / "project")


@pytest.fixture(scope="session")
def finished_template(
    template: Path, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Path:
    """A copy where the pipeline ran once, quietly, and was committed; `first_repro` beside it is
    what DVC said.

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
            project.run("git", "gc", "--quiet")  # few files, so that copies are quick
            (folder / "first_repro").write_text(said)
    return folder / "project"


@pytest.fixture
def finished(finished_template: Path, tmp_path: Path) -> Project:
    """A fresh copy of a project whose pipeline has run."""
    return Project(finished_template).copy(tmp_path / "project")
