"""Warnings come where the numbers say so, and nowhere else."""

import pytest

from tokenmill.words.warnings import training_warnings, unfit_tokenizer


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, []),
        ({"bits_per_byte": 2.1}, ["2.1000"]),
        ({"val_loss": 3.9}, ["3.90"]),
        ({"bits_per_byte": 2.1, "val_loss": 3.9}, ["2.1000", "3.90"]),
    ],
)
def test_warnings_about_a_training(changes: dict[str, float], named: list[str]):
    usual = {"train_loss": 3.0, "val_loss": 3.1, "bits_per_byte": 1.4, "frequencies": 2.0}
    found = training_warnings(**usual | changes)
    assert [number in sentence for number, sentence in zip(named, found, strict=True)] == [
        True
    ] * len(named)


def test_a_tokenizer_of_another_language_does_not_fit():
    assert not unfit_tokenizer(2.9, text=3.1)
    assert "1.30" in unfit_tokenizer(1.3, text=3.1)
