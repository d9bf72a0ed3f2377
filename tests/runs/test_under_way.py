"""Trainings that are not finished, and the models that they have so far."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.runs.unfinished import FINGERPRINT, STEPS, begin, stop
from tokenmill.cli.main import main
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json, write_text
from tokenmill.costs import TIMING
from tokenmill.model.manifest import WEIGHTS
from tokenmill.runs.find import available, find_model
from tokenmill.runs.under_way import all_under_way, under_way
from tokenmill.runs.writer import Writer
from tokenmill.training.identity import IDENTITY, NUMERICS_VERSION
from tokenmill.training.live import LIVE_RUN


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_a_training_tells_where_it_is(root: Path):
    assert under_way(root) is None
    begin(root)
    run = under_way(root)
    assert run is not None
    assert (run.step, [row.val_loss for row in run.epoch_ends], run.steps) == (18, [4.25], STEPS)
    newest = root / ".resume" / FINGERPRINT / "step-000000015"
    assert run.weights() == (15, newest)
    shutil.copytree(newest, newest.with_name(f"{newest.name} (copy)"))
    assert run.weights() == (15, newest), "what no run wrote is no checkpoint"
    assert run.sentence == "training is under way in this workspace: step 18 of 20, epoch 1.80"


def test_a_training_that_ended_tells_from_where_it_continues(root: Path):
    """Not where its last row is, nor where a run over more epochs was."""
    begin(root)
    newest = root / ".resume" / FINGERPRINT / "step-000000015"
    for other in (17, 40):
        shutil.copytree(newest, newest.with_name(f"step-{other:09d}"))
    stop(root)
    run = under_way(root)
    assert run is not None
    assert (run.step, run.weights()) == (15, (15, newest))
    assert [row.step for row in run.epoch_ends] == [10]
    assert run.sentence.startswith("the training in this workspace stopped at step 15 of 20")


@pytest.mark.parametrize("numerics", [NUMERICS_VERSION, NUMERICS_VERSION - 1])
def test_a_run_of_other_numerics_is_not_continued(root: Path, numerics: int):
    begin(root)
    stop(root)
    write_json(root / ".resume" / FINGERPRINT / IDENTITY, {"numerics": numerics})
    run = under_way(root)
    assert run is not None
    assert ("`dvc repro`" in run.sentence) == (numerics == NUMERICS_VERSION)


@pytest.mark.parametrize(
    ("first", "rows", "left"),
    [
        ({}, "12,90,9,,\n15,99,9,,\n19,100,9,,\n", None),
        ({}, "15,130,9,,\n18,136,9,,\n", 4),
        # With the seconds at the first step, one row is enough
        ({"first_step": 16, "first_seconds": 132.0}, "15,99,9,,\n17,120,9,,\n", None),
        ({"first_step": 16, "first_seconds": 132.0}, "16,132.001,9,,\n", None),
        ({"first_step": 16, "first_seconds": 132.0}, "15,99,9,,\n18,136,9,,\n", 4),
    ],
)
def test_the_remaining_time_follows_the_trainers_clock(
    root: Path, first: dict[str, float], rows: str, left: float | None
):
    """Not the clock of the day, which may be set, nor what was before this session or was lost."""
    begin(root)
    path = root / paths.LIVE / LIVE_RUN
    path.write_text(json.dumps(json.loads(path.read_text()) | first))
    os.utime(root / "live/steps.csv", (0, 0))
    head = "step,seconds,tokens_per_second,units,money\n"
    write_text(root / ".resume" / FINGERPRINT / TIMING, head + rows)
    run = under_way(root)
    assert run
    assert run.seconds_left() == left


def test_a_training_that_diverged_is_not_to_be_continued(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    begin(root)
    stop(root, diverged="in step 19; lower train.learning_rate (9.0)")
    monkeypatch.chdir(root)
    main(["summary", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["state"] == "diverged"
    assert "in step 19; lower train.learning_rate (9.0)" in told["sentence"]
    assert "dvc repro" not in [each["command"] for each in told["next"]]


def test_an_epoch_has_weights_where_checkpoints_have_none(root: Path):
    begin(root)
    folder = root / ".resume" / FINGERPRINT
    (folder / "step-000000015" / WEIGHTS).unlink()
    run = under_way(root)
    assert run is not None
    assert run.weights() == (10, run.epochs[0])
    assert run.epochs[0].parent == folder / "epochs"


def test_its_newest_finished_epoch_writes(root: Path, capsys: pytest.CaptureFixture[str]):
    begin(root)
    checkpoint = find_model(root)
    assert checkpoint.name == "epoch 1 of the training under way"
    assert checkpoint.folder.name.startswith("epoch-1-")
    assert "training is under way" in capsys.readouterr().err
    assert Writer.load(checkpoint, "cpu").model.config.context_length == 128
    with pytest.raises(UserError, match="there is no epoch 2"):
        find_model(root, epoch=2)


def test_before_its_first_epoch_there_is_no_model(root: Path):
    begin(root, epochs=0)
    assert available(root) == []
    with pytest.raises(UserError, match=r"step 18 of 20, epoch 1\.80"):
        find_model(root)


def test_trainings_in_copies_are_found_by_their_experiments(root: Path):
    copies = [root / ".dvc/tmp/exps" / name for name in ("standalone/tmpabc", "tmpxyz")]
    for number, copy in enumerate(copies):
        begin(root, copy, fingerprint=f"{number:016x}")
    write_text(
        root / ".dvc/tmp/exps/run/1f/1f.run",
        json.dumps({"root_dir": str(copies[0]), "name": "bonny-bani", "pid": 1}),
    )
    write_text(root / ".dvc/tmp/exps/run/2f/2f.run", "[")
    assert [(run.name, run.where) for run in all_under_way(root)] == [
        ("tmpxyz", "the copy tmpxyz"),
        ("bonny-bani", "the experiment bonny-bani"),
    ]
    stop(copies[1])
    assert [run.where for run in all_under_way(root)] == [
        "the experiment bonny-bani",
        "the copy tmpxyz",
    ]
    assert under_way(root) is None


def test_damaged_files_are_no_training(root: Path):
    begin(root)
    write_text(root / "live/run.json", json.dumps({"fingerprint": "../../elsewhere"}))
    assert all_under_way(root) == []


def test_a_damaged_table_is_said_and_hides_no_training(root: Path):
    begin(root)
    write_text(root / "live/steps.csv", "step,loss\n1,x\n")
    run = under_way(root)
    assert run
    assert not run.steps
    assert "rm" in run.damage
    assert "steps.csv" in run.sentence


def test_a_finished_model_comes_first(root: Path):
    """A training that was killed leaves its files; another one may have been checked out since."""
    begin(root)
    (root / paths.MODEL).mkdir(parents=True)
    write_text(root / paths.MODEL / "manifest.json", "{}")
    with pytest.raises(UserError, match="manifest"):
        available(root)
