"""Warnings come where the numbers say so, and nowhere else."""

import re

from tokenmill.words.warnings import (
    MISFIT,
    UNLIKE,
    left_out_of_chats,
    unfit_tokenizer,
    unlike_training,
    worse_than_frequencies,
)


def test_a_tokenizer_of_another_language_does_not_fit():
    assert not unfit_tokenizer(2.9, text=3.1)
    assert "1.30" in unfit_tokenizer(1.3, text=3.1)


def test_a_warning_begins_behind_its_bound_and_gives_its_numbers():
    silent = (
        worse_than_frequencies(2.5, 2.5),
        unlike_training(4, 4 * UNLIKE),
        unfit_tokenizer(4 * MISFIT, text=4),
        left_out_of_chats(0, texts=1200, context_length=64),
    )
    assert silent == ("", "", "", "")
    said = {
        worse_than_frequencies(2.5, 2.25): ["2.5000", "2.2500"],
        unlike_training(3.99, 4 * UNLIKE): ["5.00", "3.99"],
        unfit_tokenizer(2.99, text=4): ["2.99", "4.00"],
        left_out_of_chats(3, texts=1200, context_length=64): ["3", "1,200", "64"],
    }
    for sentence, numbers in said.items():
        assert re.findall(r"(?<!epoch )\b\d[\d.,]*\b", sentence) == numbers
