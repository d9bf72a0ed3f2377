"""Overfitting and the best epoch, from the losses."""

import pytest

from tokenmill.evaluation.results import Answer, EpochResult, Evaluation, Question
from tokenmill.reports.run_report import best, change, verdict


def course(*losses: tuple[float, float]) -> Evaluation:
    """Epochs with these training and validation losses."""
    epochs = [
        EpochResult(
            epoch=n, train_loss=train, val_loss=val, perplexity=1.0, bits_per_byte=1.0, answers=[]
        )
        for n, (train, val) in enumerate(losses, start=1)
    ]
    return Evaluation(questions=[], epochs=epochs)


@pytest.mark.parametrize(
    ("losses", "sentence"),
    [
        (
            [(1.0, 1.25)],
            "the validation loss is 0.2500 above the training loss; one epoch shows no trend",
        ),
        (
            [(2.0, 2.5), (1.0, 2.0)],
            "it fell in every epoch, more may still help. Its distance to the training loss grew",
        ),
        (
            [(2.0, 2.5), (1.5, 2.0)],
            "It is 0.5000 above the training loss (after epoch 1: 0.5000 above): no overfitting",
        ),
        (
            [(2.5, 2.0), (2.0, 1.9)],
            "It is 0.1000 below the training loss (after epoch 1: 0.5000 below): no overfitting",
        ),
        ([(2.0, 2.5), (1.9, 2.6), (1.8, 2.6), (1.0, 2.4)], "it did not fall in epoch 2, 3."),
        (
            [(2.0, 2.5), (1.0, 2.0), (0.5, 2.25)],
            "Overfitting. After epoch 2 the validation loss rose from 2.0000 to 2.25",
        ),
        (
            [(2.0, 2.5), (3.0, 4.0)],
            "did not fall either (2.0000 to 3.0000): this is not overfitting",
        ),
        ([(2.0, 2.5), (2.0, 2.6)], "did not fall either (2.0000 to 2.0000)"),
    ],
)
def test_verdict_follows_from_the_losses(losses: list[tuple[float, float]], sentence: str):
    assert sentence in verdict(course(*losses))


def test_first_of_equally_good_epochs_is_best():
    assert best(course((2.0, 2.0), (1.0, 1.5), (0.5, 1.5))).epoch == 2


def answered(val_loss: float, *answers: Answer) -> EpochResult:
    """An epoch with these answers."""
    return EpochResult(
        epoch=1,
        train_loss=1.0,
        val_loss=val_loss,
        perplexity=1.0,
        bits_per_byte=1.0,
        answers=list(answers),
    )


def test_change_names_prompts_that_became_right_or_wrong():
    def epoch(val_loss: float, *found: bool | None) -> EpochResult:
        answers = (
            Answer(greedy=f"{right}", sampled="", found=right, repetition=0.0) for right in found
        )
        return answered(val_loss, *answers)

    questions = [Question(prompt="a", expect="b", left_out="")] * 4
    before, after = epoch(2.0, False, True, True, None), epoch(1.5, True, False, True, None)
    found = change(questions, before, after)
    assert (found.val_loss, found.relative) == (-0.5, -0.25)
    assert (found.gained, found.lost, found.answers) == ([0], [1], 2)


def test_answers_that_changed_are_those_that_are_shown_first():
    open_, asked = (
        Question(prompt="a", expect=None, left_out="", kind=kind) for kind in ("text", "user")
    )
    before = Answer(greedy="the the", sampled="one", found=None, repetition=0.0)
    drawn_anew = before.model_copy(update={"sampled": "two"})
    likeliest_anew = before.model_copy(update={"greedy": "a a"})

    def changed(question: Question, after: Answer) -> int:
        return change([question], answered(2.0, before), answered(2.0, after)).answers

    assert (changed(open_, drawn_anew), changed(open_, likeliest_anew)) == (1, 0)
    assert (changed(asked, drawn_anew), changed(asked, likeliest_anew)) == (0, 1)
