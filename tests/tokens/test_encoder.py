"""Every implementation gives the ids of the reference, and gigatoken is used only where it does."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokens.clean_text import PROSE
from tokenmill.core.errors import UserError
from tokenmill.formats.tokenizer import END_OF_TEXT, TextTokenizer, read_tokenizer
from tokenmill.tokens import encoder as encoder_module
from tokenmill.tokens.encoder import (
    Encode,
    Encoded,
    Encoder,
    adversarial_texts,
    choose_encoder,
    first_disagreement,
)


@pytest.fixture(scope="module")
def tokenizer(bpe_file: Path) -> TextTokenizer:
    return read_tokenizer(bpe_file)


@pytest.fixture(scope="module")
def fast(tokenizer: TextTokenizer) -> Encode:
    return encoder_module.build_gigatoken(tokenizer)


@pytest.fixture(scope="module")
def reference(tokenizer: TextTokenizer) -> Encode:
    return tokenizer.encode_batch


def test_reference_gives_all_ids_in_one_row(reference: Encode, tokenizer: TextTokenizer) -> None:
    ids, offsets = reference(["river", "", "it's"])
    assert ids.tolist() == tokenizer.encode("river") + tokenizer.encode("it's")
    assert offsets.tolist() == [
        0,
        len(tokenizer.encode("river")),
        len(tokenizer.encode("river")),
        len(ids),
    ]
    assert (ids.dtype.str, offsets.dtype.str) == ("<i4", "<i8")


def test_gigatoken_agrees_on_difficult_texts(fast: Encode, reference: Encode) -> None:
    assert first_disagreement(fast, reference, adversarial_texts(count=2000, seed=1)) is None


@given(texts=st.lists(st.text(max_size=200), max_size=5))
def test_gigatoken_agrees_on_any_text(texts: list[str], fast: Encode, reference: Encode) -> None:
    assert first_disagreement(fast, reference, texts) is None


def test_gigatoken_takes_a_spelled_end_of_text_for_text(
    fast: Encode, tokenizer: TextTokenizer
) -> None:
    ids, _ = fast([f"a {END_OF_TEXT} b", END_OF_TEXT])
    assert tokenizer.eot_id not in ids
    assert tokenizer.decode(ids.tolist()) == f"a {END_OF_TEXT} b{END_OF_TEXT}"


def test_gigatoken_is_chosen_where_it_agrees(tokenizer: TextTokenizer) -> None:
    encoder = choose_encoder(tokenizer, PROSE)
    assert (encoder.name, encoder.note) == ("gigatoken", "")


def _wrong(texts: list[str], reference: Encode) -> Encoded:
    ids, offsets = reference(texts)
    for number in (number for number, text in enumerate(texts) if text == "this one"):
        ids[offsets[number]] += 1
    return ids, offsets


def test_one_wrong_id_falls_back_to_the_reference(
    tokenizer, reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        encoder_module, "build_gigatoken", lambda _: lambda texts: _wrong(texts, reference)
    )
    encoder = choose_encoder(tokenizer, ["fine", "this one"])
    assert encoder.name == "tokenizers"
    assert "'this one'" in encoder.note
    assert encoder.encode(["river"])[0].tolist() == tokenizer.encode("river")


class PanicError(BaseException):
    """As a panic in Rust arrives in Python."""


def _panic(_: object) -> Encode:
    raise PanicError("index out of bounds")


def test_panic_falls_back_to_the_reference(
    tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder_module, "build_gigatoken", _panic)
    encoder = choose_encoder(tokenizer, PROSE)
    assert encoder.name == "tokenizers"
    assert "index out of bounds" in encoder.note


@pytest.mark.parametrize("name", ["gigatoken", "tokenizers", "table"])
def test_pickled_encoder_is_built_once_per_process(name, tokenizer, char_file: Path) -> None:
    tokenizer = read_tokenizer(char_file) if name == "table" else tokenizer
    sent = pickle.dumps(Encoder(name, tokenizer.encode_batch, tokenizer, note="said once"))
    arrived = pickle.loads(sent)  # noqa: S301  (our own)
    texts = ["river says", "", "it's Müller"] if name == "table" else [END_OF_TEXT, "", *PROSE]
    assert first_disagreement(arrived.encode, tokenizer.encode_batch, texts) is None
    assert (arrived.name, arrived.note, arrived.tokenizer) == (name, "", tokenizer)
    assert arrived.tokenizer.turn_ids == tokenizer.turn_ids
    assert pickle.loads(sent) is arrived  # noqa: S301


def test_table_gives_the_ids_of_the_reference(char_file: Path) -> None:
    tokenizer = read_tokenizer(char_file)
    encoder = choose_encoder(tokenizer, PROSE)
    ids, offsets = encoder.encode(["你好 🙂", "", "é\n"])
    expected, expected_offsets = tokenizer.encode_batch(["你好 🙂", "", "é\n"])
    assert encoder.name == "table"
    assert ids.dtype.str == "<i4"
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(offsets, expected_offsets)
    with pytest.raises(UserError, match=r"U\+2603"):
        encoder.encode(["fine", "☃"])


def test_difficult_texts_cover_what_they_must() -> None:
    texts = adversarial_texts()
    together = "".join(texts)
    assert len(texts) > 500
    assert texts == adversarial_texts()
    for needle in ("\x00", "\u200b", "\u0301", END_OF_TEXT, " " * 1000, "🙂", "你", "'ll", "\r\n"):
        assert needle in together
