"""The leaderboard on a CPU: a training that reaches its mark says so, one that does not says that,
and nanoGPT's loss can be the mark."""

import argparse
import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from bench import cpu_speedrun
from bench.cpu_speedrun import TINY_PRESET, Text, against_nanogpt, reach
from tests.bench.conftest import Bench
from tokenmill.training.params import ModelSection, TrainParams

EASY, HOPELESS = 9.0, 0.1


@pytest.fixture
def text(tmp_path: Path) -> Text:
    ids = np.cumsum(np.random.default_rng(0).choice([1, 2], size=6000)).astype(np.int32) % 20
    return Text(ids[:5000], ids[5000:], 20, tmp_path)


@pytest.mark.parametrize(("mark", "reached"), [(EASY, True), (HOPELESS, False)])
def test_a_row_says_whether_the_mark_was_reached(text: Text, mark: float, reached: bool):
    row = reach(TINY_PRESET, mark, text, seed=1)
    assert row["reached"] is reached
    assert row["mark"] == mark
    assert (row["loss"] <= mark) is reached
    assert row["seconds"] > 0
    assert row["tokens"] % 16 == 0
    assert 0 < row["tokens"] <= 5000


def test_nanogpts_loss_is_the_mark(text: Text, tmp_path: Path):
    options = argparse.Namespace(nanogpt=tmp_path, tiny=True, seeds=[0])
    theirs = {"seconds": 100.0, "tokens": 5, "validation loss": 2.0}
    reached = mock.Mock(return_value={"seconds": 40.0, "reached": True})
    with (
        mock.patch.object(cpu_speedrun.nanogpt, "check"),
        mock.patch.object(cpu_speedrun, "their_run", return_value=theirs),
        mock.patch.object(cpu_speedrun, "reach", reached),
    ):
        found = list(against_nanogpt(options, TINY_PRESET, text))
    assert [row.get("reached") for row in found] == [None, True]
    assert found[1]["times fewer seconds"] == 2.5
    assert reached.call_args.args[1] == 2.0


def test_the_command_writes_its_rows(bench: Bench, tmp_path: Path):
    file = tmp_path / "rows.json"
    said = bench("cpu_speedrun", "--tiny", "--json", file)
    (row,) = json.loads(file.read_text())
    assert row["reached"]
    assert "threads" in said.splitlines()[0]


@pytest.mark.parametrize("preset", [cpu_speedrun.PRESET, TINY_PRESET])
def test_presets_are_valid_parameters(preset: cpu_speedrun.Preset, text: Text):
    found: dict[str, Any] = {}

    def train_stage(sections: dict[str, Any], here: Path) -> None:
        found.update(sections)
        raise InterruptedError

    with (
        mock.patch.object(cpu_speedrun, "train_stage", train_stage),
        pytest.raises(InterruptedError),
    ):
        reach(preset, 1.5, text, seed=0)
    model = ModelSection.model_validate(found["model"])
    train = TrainParams.model_validate(found["train"])
    assert train.target_loss == 1.5
    assert train.validation_bytes is None
    assert model.n_embd % model.n_head == 0
