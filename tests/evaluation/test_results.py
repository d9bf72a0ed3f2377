"""An epoch's metrics, and the file of an evaluation."""

from pathlib import Path

import pytest

from tests.reports.test_samples import TWO_EPOCHS
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.evaluation.results import (
    Answer,
    EpochResult,
    Evaluation,
    Mark,
    Question,
    read_evaluation,
)


def test_metrics_of_an_epoch_by_hand():
    metrics = TWO_EPOCHS.metrics(TWO_EPOCHS.epochs[0])
    expected = {
        "perplexity": 33.115,
        "bits_per_byte": 2.52466,
        "overfit": 0.5,
        "expected_found": 0.0,
    }
    assert metrics == pytest.approx(expected | {"repetition": 0.3})
    assert TWO_EPOCHS.metrics(TWO_EPOCHS.epochs[1])["expected_found"] == 1.0, (
        "only prompts with an expectation count"
    )


def test_recall_and_generalisation_are_counted_apart():
    marks: list[Mark | None] = ["seen", "seen", "held_out", "held_out", None]
    questions = [Question(prompt="?", expect="x", left_out="", mark=mark) for mark in marks]
    answers = [
        Answer(greedy="", sampled="", found=found, repetition=0)
        for found in (True, True, True, False, False)
    ]
    last = EpochResult(
        epoch=1, train_loss=1, val_loss=1, perplexity=1, bits_per_byte=1, answers=answers
    )
    evaluation = Evaluation(questions=questions, epochs=[last])
    assert evaluation.is_marked
    assert [str(evaluation.score(last, mark)) for mark in ("seen", "held_out", None)] == [
        "2 of 2",
        "1 of 2",
        "3 of 5",
    ]
    metrics = evaluation.metrics(last)
    assert [metrics[name] for name in ("seen_right", "held_out_right", "expected_found")] == [
        1.0,
        0.5,
        0.6,
    ]


def test_nothing_is_right_or_wrong_where_nothing_is_expected():
    answers = [Answer(greedy="", sampled="", found=None, repetition=0)]
    last = EpochResult(
        epoch=1, train_loss=1, val_loss=1, perplexity=1, bits_per_byte=1, answers=answers
    )
    evaluation = Evaluation(
        questions=[Question(prompt="a", expect=None, left_out="", truth="b")], epochs=[last]
    )
    assert evaluation.metrics(last).keys() == {
        "perplexity",
        "bits_per_byte",
        "overfit",
        "repetition",
    }


def test_marks_without_an_expectation_are_no_score():
    answers = [Answer(greedy="", sampled="", found=None, repetition=0)]
    last = EpochResult(
        epoch=1, train_loss=1, val_loss=1, perplexity=1, bits_per_byte=1, answers=answers
    )
    question = Question(prompt="a", expect=None, left_out="", mark="seen")
    evaluation = Evaluation(questions=[question], epochs=[last])
    assert not evaluation.is_marked
    assert str(evaluation.score(last, "held_out")) == "–"


def test_evaluation_is_read_back_or_refused(tmp_path: Path):
    path = tmp_path / "evaluation.json"
    write_json(path, TWO_EPOCHS.model_dump())
    assert read_evaluation(path) == TWO_EPOCHS
    write_json(path, TWO_EPOCHS.model_dump() | {"epochs": [{"epoch": 1}]})
    with pytest.raises(UserError, match=r"evaluation\.json is damaged"):
        read_evaluation(path)
