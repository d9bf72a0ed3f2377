"""reports/samples.md: whatever a model writes, the table stays a table."""

from typing import Any

import pytest

from tokenmill.core.errors import UserError
from tokenmill.evaluation.evaluate import HeldOut, HeldOutAnswers
from tokenmill.evaluation.results import Answer, EpochResult, Evaluation, Question
from tokenmill.reports.answers import beside_base
from tokenmill.reports.page import markdown, render


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
        ("\x1b]0;title\x07 \u202e", "␛\\]0;title␇ ⟨U+202E⟩"),
    ],
)
def test_text_is_escaped_for_a_cell(text: str, expected: str):
    assert markdown(text) == expected


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


def test_samples_show_every_epoch_under_every_prompt():
    text = render("samples.md", evaluation=TWO_EPOCHS)
    assert text.startswith("# Same prompts, different epochs\n\n| epoch | train loss at end |")
    assert (
        "| 1 | 3.0000 | 3.5000 | 33.12 | 2.5247 | 0 of 1 | 0.30 |\n| 2 | 2.0000 | 2.5000 |" in text
    )
    first, second = text.split("\n## ")[1:]
    assert first.startswith(
        "What? <br> Now!\n\nExpected: x\\|y\n\nNot in the tokenizer's alphabet, left out"
    )
    assert "| 1 ✗ | no \\| no | a <br> b |\n| 2 ✓ | x\\|y | c |\n" in first
    assert second == (
        "Go on\n\n"
        "| epoch | likeliest | sampled |\n| --- | --- | --- |\n| 1 | w | v |\n| 2 | u | t |\n"
    )
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in tables} == {4, 8}


def test_text_without_questions_has_no_column_for_right_answers():
    one = result(1, 3.0, 3.5, answer("w", "v", None, 0.1))
    text = render(
        "samples.md", evaluation=Evaluation(questions=TWO_EPOCHS.questions[1:], epochs=[one])
    )
    head, line, row = text.splitlines()[2:5]
    assert (head.count("|"), line.count("|"), row) == (
        7,
        7,
        "| 1 | 3.0000 | 3.5000 | 33.12 | 2.5247 | 0.10 |",
    )


def test_without_prompts_there_is_no_column_for_answers():
    one = EpochResult(
        epoch=1, train_loss=3, val_loss=3.5, perplexity=33, bits_per_byte=2, answers=[]
    )
    text = render("samples.md", evaluation=Evaluation(questions=[], epochs=[one, one]))
    row = "| 1 | 3.0000 | 3.5000 | 33.00 | 2.0000 |"
    head, line, *rows = text.splitlines()[2:]
    assert (head.count("|"), line.count("|"), rows) == (6, 6, [row, row])


LEARNED = HeldOut(chats=[], bytes_per_token=2.9, texts=9, left_out=0, context_length=8)


def page(*args: Any, **changes: Any) -> str:
    return beside_base(*args, chats=LEARNED.model_copy(update=changes), text_bytes_per_token=3.0)


def test_fine_tuned_answers_stand_beside_those_of_the_base():
    question = Question(prompt="W|hy?", expect=None, left_out="", truth="b\x1b|c")
    one = HeldOutAnswers(
        question, answer("old", "o|o", None, 0.0), answer("new", "n\nn", None, 0.0)
    )
    tuned = TWO_EPOCHS.model_copy(update={"epochs": TWO_EPOCHS.epochs[:1]})
    text = page(TWO_EPOCHS, tuned, [one])
    chats, prompts = text.split("# Same prompts, different epochs")
    assert "## W\\|hy?\n\nIn the chat: b␛\\|c\n\n| | likeliest | sampled |" in chats
    assert "| before fine-tuning | old | o\\|o |\n| after | new | n <br> n |\n" in chats
    assert "| 0 ✓ | x\\|y | c |\n| 1 ✗ | no \\| no | a <br> b |\n" in prompts
    assert "held-out chats" not in page(TWO_EPOCHS, tuned, [])
    warned = page(TWO_EPOCHS, tuned, [], bytes_per_token=1.5, left_out=7)
    assert [text.count("**Warning:**") for text in (warned, chats)] == [2, 0]
    assert "7 of 9 texts" in warned


def test_base_that_was_asked_other_prompts_is_refused():
    other = TWO_EPOCHS.model_copy(update={"questions": TWO_EPOCHS.questions[::-1]})
    with pytest.raises(UserError, match="dvc repro evaluate"):
        page(other, TWO_EPOCHS, [])
