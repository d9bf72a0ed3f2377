"""Streamed text holds whole characters and joins to what all ids decode to."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluation.trained import make_tokenizer_file
from tokenmill.formats.tokenizer import TextTokenizer, read_tokenizer, token_bytes
from tokenmill.runs.writer import decode_utf8, strip


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    return read_tokenizer(make_tokenizer_file(tmp_path_factory.mktemp("tokenizer"), "bpe"))


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 279)))
def test_chunks_join_to_what_the_ids_decode_to(tokenizer: TextTokenizer, ids: list[int]):
    table = token_bytes(tokenizer)
    ids = [
        token
        for token in ids
        if token < tokenizer.vocab_size and token not in tokenizer.special_ids
    ]
    assert "".join(decode_utf8(table[token] for token in ids)) == tokenizer.decode(ids)


@settings(deadline=None)
@given(text=st.text() | st.text("👩‍👧é漢\n U"))
def test_characters_are_never_split(tokenizer: TextTokenizer, text: str):
    table = token_bytes(tokenizer)
    chunks = list(decode_utf8(table[token] for token in tokenizer.encode(text)))
    assert "".join(chunks) == text
    assert (
        all("\N{REPLACEMENT CHARACTER}" not in chunk for chunk in chunks)
        or "\N{REPLACEMENT CHARACTER}" in text
    )


def test_char_tokens_spell_their_characters(tmp_path: Path):
    tokenizer = read_tokenizer(make_tokenizer_file(tmp_path, "char"))
    table = token_bytes(tokenizer)
    assert "".join(decode_utf8(table[token] for token in tokenizer.encode("one two"))) == "one two"
    assert table[tokenizer.eot_id] == b"", "it ends a text and is never written"


@given(chunks=st.lists(st.text(" \nab", max_size=5)))
def test_only_outer_white_space_is_stripped(chunks: list[str]):
    out = list(strip(chunks))
    assert "".join(out) == "".join(chunks).strip()
    assert all(out), "an empty chunk says nothing"
