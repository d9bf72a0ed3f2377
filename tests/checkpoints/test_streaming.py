"""Text in pieces: whole characters, together what all ids decode to at once."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluation.trained import make_tokenizer_file
from tokenmill.core.tokenizer import TextTokenizer, read_tokenizer, token_bytes
from tokenmill.models.writer import decoded, stripped, until

STOP = "\nUser:"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    return read_tokenizer(make_tokenizer_file(tmp_path_factory.mktemp("tokenizer"), "bpe"))


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 279)))
def test_pieces_of_any_ids_join_to_what_they_decode_to(tokenizer: TextTokenizer, ids: list[int]):
    table = token_bytes(tokenizer)
    ids = [token for token in ids if token < tokenizer.vocab_size and token != tokenizer.eot_id]
    assert "".join(decoded(table[token] for token in ids)) == tokenizer.decode(ids)


@settings(deadline=None)
@given(text=st.text() | st.text("👩‍👧é漢\n U"))
def test_a_character_is_never_shown_half(tokenizer: TextTokenizer, text: str):
    table = token_bytes(tokenizer)
    pieces = list(decoded(table[token] for token in tokenizer.encode(text)))
    assert "".join(pieces) == text
    assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces) or "\N{REPLACEMENT CHARACTER}" in text


def test_characters_write_themselves(tmp_path: Path):
    tokenizer = read_tokenizer(make_tokenizer_file(tmp_path, "char"))
    table = token_bytes(tokenizer)
    assert "".join(decoded(table[token] for token in tokenizer.encode("one two"))) == "one two"
    assert table[tokenizer.eot_id] == b"", "it ends a text and is never written"


@given(pieces=st.lists(st.text("\nUser: x", max_size=9)))
def test_a_text_ends_before_the_stop_however_it_is_cut(pieces: list[str]):
    assert "".join(until(pieces, STOP)) == "".join(pieces).partition(STOP)[0]


@given(pieces=st.lists(st.text(" \nab", max_size=5)))
def test_white_space_around_a_text_goes_and_within_it_stays(pieces: list[str]):
    out = list(stripped(pieces))
    assert "".join(out) == "".join(pieces).strip()
    assert all(out), "an empty piece says nothing"


def test_what_cannot_be_the_stop_is_not_held_back():
    seen: list[str] = []

    def source():
        for piece in ("a\nUs", "e!", "b\n", "User:", "never"):
            seen.append(piece)
            yield piece

    pieces = until(source(), STOP)
    assert next(pieces) == "a"
    assert seen == ["a\nUs"]
    assert list(pieces) == ["\nUse!", "b"]
    assert seen[-1] == "User:"
