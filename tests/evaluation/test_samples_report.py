"""reports/samples.md: whatever a model writes, the table stays a table."""

from pathlib import Path

import pytest

from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.evaluation.results import Answer, EpochResult, Evaluation, Question, read_evaluation
from tokenmill.reports.answers import cell, render


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words.", "plain words."),
        ("", ""),
        ("a|b", r"a\|b"),
        ("a\nb\r\nc", "a <br> b <br> c"),
        ("a\u2028b\x0bc", "a <br> b <br> c"),
        ("<b> & <script>", "&lt;b&gt; &amp; &lt;script&gt;"),
        ("*a* _b_ `c`", r"\*a\* \_b\_ \`c\`"),
        ("[a](b) # ~~c~~", r"\[a\](b) \# \~\~c\~\~"),
        ("a\\|b", r"a\\\|b"),
        ('"quoted"', '"quoted"'),
    ],
)
def test_text_stands_in_a_cell_as_it_is(text: str, expected: str):
    assert cell(text) == expected


def result(epoch: int, train_loss: float, val_loss: float, *answers: Answer) -> EpochResult:
    return EpochResult(
        epoch=epoch,
        train_loss=train_loss,
        val_loss=val_loss,
        perplexity=33.115,
        bits_per_byte=2.52466,
        answers=list(answers),
    )


def answer(greedy: str, sampled: str, found: bool | None, repetition: float) -> Answer:
    return Answer(greedy=greedy, sampled=sampled, found=found, repetition=repetition)


TWO_EPOCHS = Evaluation(
    questions=[
        Question(prompt="What?\nNow!", expect="x|y", left_out="→"),
        Question(prompt="Go on", expect=None, left_out=""),
    ],
    epochs=[
        result(1, 3.0, 3.5, answer("no | no", "a\nb", False, 0.5), answer("w", "v", None, 0.1)),
        result(2, 2.0, 2.5, answer("x|y", "c", True, 0.0), answer("u", "t", None, 0.0)),
    ],
)


def test_the_report_shows_every_epoch_under_every_prompt():
    text = render(TWO_EPOCHS)
    assert text.startswith("# Same prompts, different epochs\n\n| epoch | train loss |")
    assert "| 1 | 3.0000 | 3.5000 | 33.12 | 2.5247 | 0 of 1 | 0.30 |\n| 2 | 2.0000 | 2.5000 |" in text
    first, second = text.split("\n## ")[1:]
    assert first.startswith("What? <br> Now!\n\nExpected: x\\|y\n\nNot in the tokenizer's alphabet, left out")
    assert "| 1 ✗ | no \\| no | a <br> b |\n| 2 ✓ | x\\|y | c |\n" in first
    assert second == "Go on\n\n| epoch | likeliest | sampled |\n| --- | --- | --- |\n| 1 | w | v |\n| 2 | u | t |\n"
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in tables} == {4, 8}


def test_an_epochs_metrics_by_hand():
    metrics = TWO_EPOCHS.epochs[0].metrics()
    expected = {"perplexity": 33.115, "bits_per_byte": 2.52466, "overfit": 0.5, "expected_found": 0.0}
    assert metrics == pytest.approx(expected | {"repetition": 0.3})
    assert TWO_EPOCHS.epochs[1].metrics()["expected_found"] == 1.0, "only prompts with an expectation count"
    assert result(1, 3.0, 3.5).metrics()["expected_found"] == 0.0


def test_an_evaluation_survives_its_file_and_a_damaged_one_is_named(tmp_path: Path):
    path = tmp_path / "evaluation.json"
    write_json(path, TWO_EPOCHS.model_dump())
    assert read_evaluation(path) == TWO_EPOCHS
    write_json(path, TWO_EPOCHS.model_dump() | {"epochs": [{"epoch": 1}]})
    with pytest.raises(UserError, match=r"evaluation\.json is damaged \(5 fields are wrong\)"):
        read_evaluation(path)
