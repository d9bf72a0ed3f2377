"""Prompts from held-out text: what begins, what follows, and from where."""

from pathlib import Path

import numpy as np
import pytest

from tests.evaluation.trained import make_tokenizer_file
from tests.tokens.clean_text import write_clean
from tokenmill.core.chat import render
from tokenmill.core.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.evaluation.openings import COUNT, Opening, openings, places
from tokenmill.tokens.pack import pack
from tokenmill.tokens.params import TokenizeParams
from tokenmill.tokens.unpack import unpack

CHAT = render([("user", "count?"), ("assistant", "one two"), ("user", "more?"), ("assistant", "three")])
SYSTEM = render([("system", "Be terse."), ("user", "count?"), ("assistant", "one two")])
PROSE = "the cat sat on the mat and the dog lay by the door until the evening came and it was dark"


def of(folder: Path, texts: list[str], *, context_length: int = 64, length: int = 16) -> list[Opening]:
    """The prompts from `texts` as validation text."""
    tokenizer = make_tokenizer_file(folder, "char", [*texts, "word " * 40])
    clean = write_clean(folder / "both", ["word " * 40, *texts])
    share = sum(map(len, texts)) / (200 + sum(map(len, texts)))
    pack(clean, tokenizer, folder / "packed", TokenizeParams(split="tail", val_fraction=min(share, 0.5)))
    unpack(folder / "packed", folder / "tokens")
    reader: TextTokenizer = read_tokenizer(tokenizer)
    return openings(folder / "tokens", reader, context_length=context_length, max_new_tokens=length)


def test_conversation_is_asked_its_first_question(tmp_path: Path):
    assert of(tmp_path, [CHAT]) == [Opening(user="count?", truth="one two")]


def test_system_message_stays_before_the_question(tmp_path: Path):
    assert of(tmp_path, [SYSTEM]) == [Opening(text=SYSTEM.removesuffix(" one two"), truth="one two")]


def test_text_begins_with_whole_words_and_the_true_text_follows(tmp_path: Path):
    [opening] = of(tmp_path, [PROSE])
    assert opening.text == "the cat sat on the mat and the"
    assert opening.truth == "dog lay by the"


def test_question_beyond_the_context_is_only_begun(tmp_path: Path):
    [opening] = of(tmp_path, [CHAT], context_length=20)
    assert opening.user is None
    assert opening.text == "User:"


def test_long_text_is_opened_at_even_distances_at_words(tmp_path: Path):
    words = [f"w{number}" for number in range(400)]
    found = of(tmp_path, ["word " * 100, " ".join(words)], length=4)
    assert len(found) == COUNT
    numbers = [int(opening.text.split()[0][1:]) for opening in found[1:] if opening.text]
    assert numbers == sorted(set(numbers))
    assert all(opening.text in " ".join(words) for opening in found[1:] if opening.text)


@pytest.mark.parametrize("documents", [1, 3, 10, 500])
def test_documents_are_opened_once_and_evenly(documents: int):
    ids = np.concatenate([[number + 1] * 7 + [0] for number in range(documents)])
    found = list(places(ids, 0, length=20))
    assert len(found) == len(set(found)) == min(documents, COUNT)
    assert all(place % 8 == 0 and not is_middle for place, is_middle in found)


def test_documents_too_short_to_begin_are_passed_over():
    ids = np.array([1, 0, 2, 0, 3, 3, 3, 3, 3, 0, 4, 0])
    assert list(places(ids, 0, length=3)) == [(4, False)]
