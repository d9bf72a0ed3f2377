"""A small model of each architecture, without a weight that is zero or equal to another."""

import pytest

from tests.model.small import ARCHITECTURES, small_config, with_noise
from tokenmill.model.gpt import GPT, build


@pytest.fixture(params=ARCHITECTURES)
def model(request: pytest.FixtureRequest) -> GPT:
    return with_noise(build(small_config(request.param), seed=1), seed=2, scale=0.2).eval()
