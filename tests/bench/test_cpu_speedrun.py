"""The leaderboard on a CPU: a training that reaches its mark says so, one that does not says that,
and nanoGPT's loss can be the mark."""

import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from bench.cpu_speedrun import LONG, SHORT, TINY, preset_for
from bench.training import nanogpt, to_loss
from bench.training.to_loss import MARGIN, Preset, Text, against_nanogpt, reach
from tests.bench.conftest import Bench
from tokenmill.training.params import ModelSection, TrainParams

EASY, HOPELESS = 9.0, 0.1


@pytest.fixture
def text(tmp_path: Path) -> Text:
    ids = np.cumsum(np.random.default_rng(0).choice([1, 2], size=6000)).astype(np.int32) % 20
    return Text(ids[:5000], ids[5000:], 20, tmp_path)


@pytest.mark.usefixtures("forked_jobs")
@pytest.mark.parametrize(("mark", "reached"), [(EASY, True), (HOPELESS, False)])
def test_a_row_says_whether_the_mark_was_reached(text: Text, mark: float, reached: bool):
    row = reach(TINY, mark, text, seed=1)
    assert row["reached"] is reached
    assert row["mark"] == mark
    assert (row["loss"] <= mark) is reached
    assert row["seconds"] > 0
    assert row["tokens"] % 16 == 0
    assert 0 < row["tokens"] <= 5000


def test_nanogpts_loss_is_the_mark(text: Text, tmp_path: Path):
    theirs = {"seconds": 100.0, "tokens": 5, "loss": 2.0}
    reached = mock.Mock(return_value={"seconds": 40.0, "tokens": 2, "reached": True})
    with (
        mock.patch.object(to_loss, "nanogpts_row", return_value=theirs),
        mock.patch.object(to_loss, "reach", reached),
    ):
        found = list(against_nanogpt(tmp_path, nanogpt.TINY, TINY, text, seed=3))
    assert [row.get("reached") for row in found] == [None, True]
    assert (found[1]["times fewer seconds"], found[1]["times fewer tokens"]) == (2.5, 2.5)
    assert reached.call_args.args[1] == 2.0
    assert reached.call_args.kwargs == {"seed": 3}


@pytest.mark.usefixtures("forked_jobs")
def test_a_training_without_a_mark_goes_to_its_end(text: Text):
    row = reach(TINY, None, text, seed=0)
    assert "reached" not in row
    assert row["tokens"] == 4992  # 312 whole sequences of 16 before a last target


@pytest.mark.parametrize(
    ("mark", "preset"), [(3.0, SHORT), (SHORT.marks[-1], SHORT), (1.45, LONG), (0.1, LONG)]
)
def test_a_mark_has_the_shortest_training_for_it(mark: float, preset: Preset):
    assert preset_for(mark) is preset
    assert sorted(preset.marks, reverse=True) == [*preset.marks]


@pytest.mark.slow
def test_the_command_writes_its_rows(bench: Bench, tmp_path: Path):
    file = tmp_path / "rows.json"
    said = bench("cpu_speedrun", "--tiny", "--json", file)
    (row,) = json.loads(file.read_text())
    assert row["reached"]
    assert "threads" in said.splitlines()[0]


@pytest.mark.parametrize("preset", [SHORT, LONG, TINY])
def test_presets_are_valid_parameters(preset: Preset, text: Text):
    found: dict[str, Any] = {}

    def train_stage(sections: dict[str, Any], here: Path) -> None:
        found.update(sections)
        raise InterruptedError

    with (
        mock.patch.object(to_loss, "train_stage", train_stage),
        pytest.raises(InterruptedError),
    ):
        reach(preset, 1.5, text, seed=0)
    model = ModelSection.model_validate(found["model"])
    train = TrainParams.model_validate(found["train"])
    assert train.target_loss == pytest.approx(1.5 - MARGIN)
    assert train.validation_bytes is None
    assert model.n_embd % model.n_head == 0
