"""Training writes the cost of each of its epochs."""

from pathlib import Path

import pytest

from tests.training.tiny import CONTEXT, run
from tokenmill.costs import read_costs
from tokenmill.training.size import flops_per_token


def test_training_writes_what_each_epoch_costs(here: Path, tokens: Path):
    outcome = run(
        tokens,
        here / "model",
        runtime={"cost": {"price_per_hour": 3600.0, "units_per_hour": 7200.0}},
    )
    costs = read_costs(here / "costs.csv")
    assert list(costs["epoch"]) == [1, 2]
    assert costs["money"].to_numpy() == pytest.approx(costs["seconds"].to_numpy(), abs=2e-3)
    assert costs["units"].to_numpy() == pytest.approx(2 * costs["seconds"].to_numpy(), abs=4e-3)
    assert set(costs["flops"]) == {19 * CONTEXT * flops_per_token(outcome.manifest.model)}
    assert set(costs["currency"]) == {"EUR"}
