"""The training text of the default run, made once."""

import pytest

from tests.sample.corpus import COUNT
from tokenmill.sample.generator import Conversation, conversations


@pytest.fixture(scope="package")
def training() -> list[Conversation]:
    return list(conversations(seed=0, count=COUNT))
