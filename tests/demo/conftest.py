"""A project to demonstrate, and the demo of it in a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import browser  # noqa: F401 (a fixture)
from tests.demo.demo_project import keep_with_dvc, make_project
from tests.demo.served import Served, start


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs, without git; beside it the folders `reciter`, `endless` and
    `damaged`."""
    return make_project(tmp_path_factory.mktemp("demo") / "project")


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in git and DVC, with an experiment of three epochs."""
    root = make_project(tmp_path_factory.mktemp("kept") / "project")
    keep_with_dvc(root)
    return root


@pytest.fixture(scope="session")
def served(kept: Path) -> Iterator[Served]:
    """The demo of `kept`, and of the folders beside it."""
    models = ("--model", "../reciter", "../endless", "../damaged")
    name = ("--host-name", "Demo.example")
    with start(kept, "--port", "0", *models, *name) as running:
        yield running
