"""An epoch's metrics, and the file of an evaluation."""

import math
import re
from pathlib import Path
from typing import Any

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
)
from tokenmill.formats.records import read_record


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
    assert evaluation.scores == {
        "recall": "seen",
        "generalisation": "held_out",
        "right answers": None,
    }, "one prompt has no mark"
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


def test_without_prompts_no_repetition_is_measured():
    last = EpochResult(epoch=1, train_loss=1, val_loss=1, perplexity=1, bits_per_byte=1, answers=[])
    metrics = Evaluation(questions=[], epochs=[last]).metrics(last)
    assert metrics.keys() == {"perplexity", "bits_per_byte", "overfit"}


def test_marks_without_an_expectation_are_no_score():
    answers = [Answer(greedy="", sampled="", found=None, repetition=0)]
    last = EpochResult(
        epoch=1, train_loss=1, val_loss=1, perplexity=1, bits_per_byte=1, answers=answers
    )
    question = Question(prompt="a", expect=None, left_out="", mark="seen")
    evaluation = Evaluation(questions=[question], epochs=[last])
    assert not evaluation.scores
    assert str(evaluation.score(last, "held_out")) == "–"


@pytest.mark.parametrize(
    ("val_loss", "bits_per_byte", "named"),
    [(3.1, 1.4, []), (3.1, 2.1, ["2.1000"]), (3.9, 1.4, ["3.90"]), (3.9, 2.1, ["2.1000", "3.90"])],
)
def test_warnings_come_where_the_losses_say_so(
    val_loss: float, bits_per_byte: float, named: list[str]
):
    usual: dict[str, Any] = {"perplexity": 1, "answers": []}
    first = EpochResult(epoch=1, train_loss=3.0, val_loss=val_loss, bits_per_byte=9.0, **usual)
    last = EpochResult(epoch=2, train_loss=1.0, val_loss=9.0, bits_per_byte=bits_per_byte, **usual)
    found = Evaluation(questions=[], epochs=[first, last]).warnings(2.0)
    assert len(found) == len(named)
    assert all(number in sentence for number, sentence in zip(named, found, strict=True))


def test_evaluation_is_read_back_or_refused(tmp_path: Path):
    path = tmp_path / "evaluation.json"
    write_json(path, TWO_EPOCHS.model_dump())
    assert read_record(path, Evaluation) == TWO_EPOCHS
    write_json(path, TWO_EPOCHS.model_dump() | {"epochs": [{"epoch": "one"}]})
    with pytest.raises(UserError, match=r"evaluation\.json .*epochs\.0"):
        read_record(path, Evaluation)


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        ("epochs", [], "epochs"),
        ("epochs.1.answers", [], "epoch 2 has 0 answers to 2 prompts"),
        ("epochs.0.val_loss", math.nan, "epochs.0.val_loss"),
        ("epochs.0.train_loss", math.inf, "epochs.0.train_loss"),
        ("epochs.0.perplexity", math.nan, "epochs.0.perplexity"),
        ("epochs.0.answers.0.repetition", math.nan, "epochs.0.answers.0.repetition"),
    ],
)
def test_an_evaluation_that_lacks_something_is_refused(
    place: str, value: object, named: str, tmp_path: Path
):
    path = tmp_path / "evaluation.json"
    write_json(path, changed(place, value))
    with pytest.raises(UserError, match=re.escape(named)):
        read_record(path, Evaluation)


def test_an_infinite_perplexity_is_read(tmp_path: Path):
    """`evaluate` writes it for a loss beyond 700."""
    path = tmp_path / "evaluation.json"
    write_json(path, changed("epochs.0.perplexity", math.inf))
    assert read_record(path, Evaluation).epochs[0].perplexity == math.inf


def changed(place: str, value: object) -> dict[str, Any]:
    """TWO_EPOCHS as JSON with another value at a dotted place."""
    content: Any = TWO_EPOCHS.model_dump()
    inner = content
    *above, last = (int(part) if part.isdecimal() else part for part in place.split("."))
    for part in above:
        inner = inner[part]
    inner[last] = value
    return content
