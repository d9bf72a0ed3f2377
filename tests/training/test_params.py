"""`train.learning_rate: auto`: published rates, and what the model's width makes of it."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.imports import ROOT
from tokenmill.core.errors import UserError
from tokenmill.model.config import ModelParams
from tokenmill.schema import check_all
from tokenmill.training.params import TrainParams, auto_learning_rate

GPT_3 = {768: 6e-4, 1024: 3e-4, 1536: 2.5e-4, 2048: 2e-4, 2560: 1.6e-4, 4096: 1.2e-4, 5120: 1e-4}
"""Width and rate of the models in Brown et al. 2020, table 2.1."""


def written(tmp_path: Path, *, n_embd: int = 128, **train: Any) -> Path:
    yaml = YAML(typ="safe")
    path = tmp_path / "params.yaml"
    content = yaml.load(ROOT / "params.yaml")
    content["model"]["n_embd"] = n_embd
    content["train"] |= {"learning_rate": "auto"} | train
    yaml.dump(content, path)
    return path


@pytest.mark.parametrize(("width", "rate"), GPT_3.items())
def test_adamw_rates_are_about_those_of_gpt_3(width: int, rate: float):
    model = ModelParams(
        architecture="gpt2", n_layer=1, n_head=1, n_embd=width, context_length=2, dropout=0.0
    )
    assert rate / 1.6 < auto_learning_rate(model, "adamw") < rate * 1.6


def test_auto_is_the_tuned_rate_and_a_number_stays(tmp_path: Path):
    assert check_all(written(tmp_path)).train.peak == 4e-3
    assert check_all(written(tmp_path, learning_rate=7e-3)).train.peak == 7e-3


@pytest.mark.parametrize(("optimizer", "falls"), [("adamw", 4.0), ("muon", 2.0)])
def test_rate_falls_with_the_width(tmp_path: Path, optimizer: str, falls: float):
    narrow, wide = (
        check_all(written(tmp_path, n_embd=n, optimizer=optimizer)).train.peak for n in (128, 512)
    )
    assert narrow / wide == pytest.approx(falls, rel=0.03), "two digits"


def test_wrong_model_is_the_only_complaint(tmp_path: Path):
    with pytest.raises(
        UserError, match=r"^[^:]+: model\.n_embd \(0\) must be greater than or equal to 1\.$"
    ):
        check_all(written(tmp_path, n_embd=0))


def test_auto_has_no_number_without_a_model():
    train = TrainParams.model_validate(
        YAML(typ="safe").load(ROOT / "params.yaml")["train"] | {"learning_rate": "auto"}
    )
    with pytest.raises(ValueError, match="depends on the model's width"):
        _ = train.peak
