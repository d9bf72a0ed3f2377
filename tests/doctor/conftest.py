"""Projects to check: a small repository with a pipeline of one stage, and this checkout's own
pipeline."""

from pathlib import Path

import pytest

from tests.doctor.small import make_repository
from tests.pipeline.conftest import finished, finished_template, project, template
from tests.pipeline.project import Project

__all__ = ["finished", "finished_template", "project", "template"]


@pytest.fixture(scope="session")
def repository_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repository(tmp_path_factory.mktemp("doctor") / "project")


@pytest.fixture
def repository(repository_template: Path, tmp_path: Path) -> Project:
    """A fresh copy of the small repository, where nothing has run."""
    return Project(repository_template).copy(tmp_path / "project")
