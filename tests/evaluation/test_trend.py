"""What the report says of a training's course."""

import pytest

from tokenmill.evaluation.results import EpochResult, Evaluation
from tokenmill.reports.run_report import best, verdict


def course(*losses: tuple[float, float]) -> Evaluation:
    """Epochs with these training and validation losses."""
    epochs = [
        EpochResult(epoch=n, train_loss=train, val_loss=val, perplexity=1.0, bits_per_byte=1.0, answers=[])
        for n, (train, val) in enumerate(losses, start=1)
    ]
    return Evaluation(questions=[], epochs=epochs)


@pytest.mark.parametrize(
    ("losses", "sentence"),
    [
        ([(1.0, 1.25)], "the validation loss is 0.2500 above the training loss; one epoch shows no trend"),
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
        ([(2.0, 2.5), (1.9, 2.6), (1.0, 2.4)], "it did not fall in epoch 2"),
        (
            [(2.0, 2.5), (1.0, 2.0), (0.5, 2.25)],
            "Overfitting. After epoch 2 the validation loss rose from 2.0000 to 2.25",
        ),
        ([(2.0, 2.5), (3.0, 4.0)], "did not fall either (2.0000 to 3.0000): this is no overfitting"),
    ],
)
def test_the_verdict_follows_from_the_losses(losses: list[tuple[float, float]], sentence: str):
    assert sentence in verdict(course(*losses))


def test_of_equally_good_epochs_the_first_is_best():
    assert best(course((2.0, 2.0), (1.0, 1.5), (0.5, 1.5))).epoch == 2
