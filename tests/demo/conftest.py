"""A project to demonstrate, and the demo of it, served by a thread."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import browser  # noqa: F401 (a fixture)
from tests.demo.demo_project import keep_with_dvc, make_project
from tests.demo.served import Served, pages_of, served_by_a_thread


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs, without git; beside it the folders `reciter`, `other` and `damaged`."""
    return make_project(tmp_path_factory.mktemp("demo") / "project")


@pytest.fixture
def copy(project: Path, tmp_path: Path) -> Path:
    """The same, to change."""
    return shutil.copytree(project, tmp_path / "project")


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in git and DVC, with an experiment of three epochs."""
    root = make_project(tmp_path_factory.mktemp("kept") / "project")
    keep_with_dvc(root)
    return root


@pytest.fixture(scope="session")
def served(project: Path) -> Iterator[Served]:
    """The demo of `project`, and of the folders beside it."""
    pages = pages_of(project, "reciter", "other", "damaged")
    with served_by_a_thread(pages, "Demo.example") as running:
        yield running
