"""Results that lie together must be of one run."""

from pathlib import Path
from typing import Any

import pytest

from tests.reports.run_material import evaluation
from tests.runs.locks import write_lock
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.dvc_lock import Lock
from tokenmill.runs.consistency import false_parameters, read_own_evaluation


def test_the_evaluation_must_be_that_of_the_model(tmp_path: Path):
    write_json(tmp_path / "reports/evaluation.json", evaluation(2).model_dump())
    write_lock(tmp_path)
    assert read_own_evaluation(tmp_path) == evaluation(2)
    write_lock(tmp_path, evaluated="earlier")
    with pytest.raises(UserError, match=r"evaluation\.json .*another model.*`dvc repro`"):
        read_own_evaluation(tmp_path)


def test_the_model_must_be_that_of_the_text(tmp_path: Path):
    write_json(tmp_path / "reports/evaluation.json", evaluation(2).model_dump())
    write_lock(tmp_path, trained="earlier")
    with pytest.raises(UserError, match=r"models/gpt .*another text.*data/clean.*`dvc repro`"):
        read_own_evaluation(tmp_path)


@pytest.mark.parametrize(
    ("manifest", "false"),
    [
        ({}, []),
        ({"model": {"vocab_size": 400}, "train": {"epochs": 2, "target_loss": None}}, []),
        ({"train": {"epochs": 1, "target_loss": 2.5}}, ["train.epochs", "train.target_loss"]),
    ],
)
def test_the_model_must_be_that_of_the_parameters(
    manifest: dict[str, Any], false: list[str], tmp_path: Path
):
    """As they are not after `dvc exp save` of a change that no stage has run."""
    write_json(tmp_path / "reports/evaluation.json", evaluation(2).model_dump())
    write_json(tmp_path / "models/gpt/manifest.json", manifest)
    write_lock(tmp_path)
    recorded = Lock.read(tmp_path).trained_with
    assert false_parameters(manifest, recorded) == false
    assert not false_parameters(manifest, dict.fromkeys(recorded, "auto"))
    if not false:
        assert read_own_evaluation(tmp_path) == evaluation(2)
        return
    with pytest.raises(UserError, match=r"models/gpt .*train\.epochs.*dvc\.lock.*`dvc repro -sf"):
        read_own_evaluation(tmp_path)


def test_the_evaluation_must_be_that_of_the_metrics(tmp_path: Path):
    """Git brings the metrics of another revision, and DVC the evaluation only when it is asked."""
    write_json(tmp_path / "reports/evaluation.json", evaluation(2).model_dump())
    measured = evaluation(2).metrics(evaluation(2).epochs[-1])
    of_an_older_version = {"bits_per_byte": measured["bits_per_byte"], "renamed since": 1.0}
    for known in (measured, of_an_older_version):
        write_json(tmp_path / "metrics/eval.json", known)
        assert read_own_evaluation(tmp_path) == evaluation(2)
    write_json(tmp_path / "metrics/eval.json", measured | {"bits_per_byte": 1.0})
    with pytest.raises(UserError, match=r"evaluation\.json .*metrics/eval\.json.*`dvc checkout`"):
        read_own_evaluation(tmp_path)
