"""The page's code under node, and a project to publish."""

from collections.abc import Iterator

import pytest

from tests.browser import browser  # noqa: F401 (a fixture)
from tests.publish.node import Node, running


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    with running() as process:
        yield process
