"""Two small models, one of each architecture, with weights in which nothing is zero or alike."""

import pytest
import torch

from tests.model.small import small_config
from tokenmill.model.build import build
from tokenmill.model.gpt import GPT


@pytest.fixture(params=["gpt2", "modern"])
def model(request: pytest.FixtureRequest) -> GPT:
    model = build(small_config(request.param), seed=1)
    draws = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draws), alpha=0.2)
    return model.eval()
