"""The page's code under node, and a project to publish."""

from collections.abc import Iterator

import pytest

from tests.publish.node import Node, running


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    with running() as process:
        yield process
