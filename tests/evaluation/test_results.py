"""An epoch's metrics, and the file of an evaluation."""

from pathlib import Path

import pytest

from tests.reports.test_samples import TWO_EPOCHS, result
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.evaluation.results import read_evaluation


def test_metrics_of_an_epoch_by_hand():
    metrics = TWO_EPOCHS.epochs[0].metrics()
    expected = {"perplexity": 33.115, "bits_per_byte": 2.52466, "overfit": 0.5, "expected_found": 0.0}
    assert metrics == pytest.approx(expected | {"repetition": 0.3})
    assert TWO_EPOCHS.epochs[1].metrics()["expected_found"] == 1.0, "only prompts with an expectation count"
    assert result(1, 3.0, 3.5).metrics()["expected_found"] == 0.0


def test_evaluation_is_read_back_or_refused(tmp_path: Path):
    path = tmp_path / "evaluation.json"
    write_json(path, TWO_EPOCHS.model_dump())
    assert read_evaluation(path) == TWO_EPOCHS
    write_json(path, TWO_EPOCHS.model_dump() | {"epochs": [{"epoch": 1}]})
    with pytest.raises(UserError, match=r"evaluation\.json is damaged \(5 fields are wrong\)"):
        read_evaluation(path)
