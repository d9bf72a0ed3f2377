"""Warnings come where the numbers say so, and nowhere else."""

from tokenmill.words.warnings import unfit_tokenizer


def test_a_tokenizer_of_another_language_does_not_fit():
    assert not unfit_tokenizer(2.9, text=3.1)
    assert "1.30" in unfit_tokenizer(1.3, text=3.1)
