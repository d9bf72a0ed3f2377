"""A small model of each architecture, without a weight that is zero or equal to another."""

import pytest
import torch

from tests.model.small import ARCHITECTURES, small_config
from tokenmill.model.gpt import GPT, build


@pytest.fixture(params=ARCHITECTURES)
def model(request: pytest.FixtureRequest) -> GPT:
    model = build(small_config(request.param), seed=1)
    draws = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draws), alpha=0.2)
    return model.eval()
