"""The comparison of fine-tunings, in next to no time: what TokenMill does, and what the others
would get."""

import argparse
from pathlib import Path

import numpy as np
import pytest

from bench import finetuning
from tests.data.material import json_lines
from tokenmill.finetuning.chats import read_chats
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.model.ops import IGNORED

TINY = {"sequences": 6, "width": 32, "layers": 1, "context": 32, "vocabulary": 280}


def test_both_methods_learn_from_the_same_chats(here: Path):
    chats = [
        {"instruction": "count? " * (number % 7), "response": f"{number} one"}
        for number in range(99)
    ]
    (here / "chats.jsonl").write_bytes(json_lines(chats))
    folder = here / "work"
    tokens = finetuning.prepare(argparse.Namespace(chats=here / "chats.jsonl", **TINY), folder)
    tokenizer = read_tokenizer(folder / "tokenizer.json")
    val = read_chats(folder / "whole", tokenizer, context_length=32, held_out=0.05)["val"]
    assert finetuning.answer_bytes(np.load(folder / "val.npy"), tokenizer) == val.answer_bytes
    layers = np.load(folder / "train.npy")
    assert 0 < tokens <= layers[:, 0].size
    losses = [
        finetuning.work("TokenMill", method, folder, 0)["val_loss"] for method in finetuning.METHODS
    ]
    assert losses[0] != losses[1]


@pytest.mark.parametrize("at_most", [4, 5])
def test_labels_are_the_tokens_that_count(at_most: int):
    ids = np.array([5, 6, 7, 8])
    targets = np.array([IGNORED, 7, 8, 9])
    chat = finetuning._labelled(ids, targets, at_most=at_most)
    assert chat == {
        "input_ids": [5, 6, 7, 8, 9][:at_most],
        "labels": [-100, -100, 7, 8, 9][:at_most],
    }
