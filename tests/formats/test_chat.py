"""No text of somebody else opens a turn, and special tokens are where the renderer put them."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.formats.chat import (
    ROLES,
    START,
    TURN_END,
    TURN_TOKENS,
    Document,
    Role,
    plain,
    readable,
    render_chat,
    spelled,
    split_turns,
)
from tokenmill.formats.chat_columns import (
    as_lines,
    change_text,
    encode_documents,
    mark_count,
    plain_column,
    text_bytes,
    texts_between,
)
from tokenmill.formats.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.tokens.encoder import build_gigatoken

MARKS = "".join(TURN_TOKENS)

NASTY = st.lists(
    st.text(max_size=5)
    | st.sampled_from([*TURN_TOKENS, *TURN_TOKENS.values(), "\nUser:", "Assistant: ", " ", "é"]),
    max_size=8,
).map("".join)
"""Texts that try to open or to end a turn."""

ROLE = st.sampled_from([*ROLES, "Assistant", "Anna"]) | NASTY

CHATS = st.lists(st.tuples(ROLE, NASTY), max_size=5)


@pytest.fixture(scope="module")
def tokenizer(bpe_file: Path) -> TextTokenizer:
    return read_tokenizer(bpe_file)


def spoken(messages: list[tuple[str, str]]) -> list[str]:
    """The marks that a conversation must have."""
    told: list[tuple[Role, str]] = [
        (ROLES.get(role.lower(), "user"), plain(said).strip()) for role, said in messages
    ]
    if ("assistant", "") in told:
        return []
    starts = [START[role] for role, said in told if said]
    return [mark for start in starts for mark in (start, TURN_END)]


@settings(deadline=None)
@given(messages=CHATS)
def test_boundaries_are_where_the_renderer_put_them(
    messages: list[tuple[str, str]], tokenizer: TextTokenizer
):
    ids = tokenizer.encode_document(render_chat(messages))
    names = {token: mark for mark, token in tokenizer.turn_ids.items()}
    assert [names[one] for one in ids if one in tokenizer.special_ids] == spoken(messages)


@settings(deadline=None)
@given(text=NASTY)
def test_text_is_text_whatever_it_spells(text: str, tokenizer: TextTokenizer):
    assert not tokenizer.special_ids & set(tokenizer.encode(text))
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=NASTY)
def test_the_door_takes_marks_and_nothing_else(text: str):
    assert plain(text) == text.translate(dict.fromkeys(map(ord, MARKS)))
    assert plain_column(pl.Series([text]))[0] == plain(text)


@settings(deadline=None)
@given(messages=CHATS)
def test_documents_come_back_from_ids(messages: list[tuple[str, str]], tokenizer: TextTokenizer):
    document = render_chat(messages)
    assert tokenizer.decode_document(tokenizer.encode_document(document)) == document
    assert "".join(split_turns(document)) == document


@settings(deadline=None)
@given(documents=st.lists(CHATS.map(render_chat) | st.text(max_size=9).map(plain), max_size=6))
def test_columns_are_encoded_like_their_documents(documents: list[str], tokenizer: TextTokenizer):
    column = pl.Series(documents, dtype=pl.String)
    expected = [tokenizer.encode_document(Document(one)) for one in documents]
    for encode in (tokenizer.encode_batch, build_gigatoken(tokenizer)):
        ids, offsets = encode_documents(column, encode, tokenizer.turn_ids)
        assert ids.dtype == np.dtype("<i4")
        rows = [part.tolist() for part in np.split(ids, offsets[1:-1])][: len(documents)]
        assert rows == expected


@given(documents=st.lists(CHATS.map(render_chat) | st.text(max_size=9).map(plain), max_size=6))
def test_measures_count_no_marks(documents: list[str]):
    column = pl.Series(documents, dtype=pl.String)
    assert text_bytes(column) == sum(len(plain(one).encode()) for one in documents)
    assert mark_count(column) == sum(len(one) - len(plain(one)) for one in documents)
    assert "".join(texts_between(column)) == "".join(map(plain, documents))
    assert not mark_count(as_lines(column))


def test_each_turn_is_a_line_of_what_filters_see():
    chat = render_chat([("system", "Be\nbrief."), ("user", "Hi"), ("assistant", "Ho")])
    assert as_lines(pl.Series([chat, "text"])).to_list() == ["Be\nbrief.\nHi\nHo", "text"]


def test_what_is_left_of_a_conversation_is_one():
    told = [("user", "one"), ("assistant", "gone"), ("user", "two"), ("assistant", "three")]
    column = pl.Series([render_chat(told), "gone", render_chat(told[2:]), render_chat(told[:1])])
    left = change_text(column, lambda some: some.str.replace("gone", ""))
    assert left.to_list() == ["", "", render_chat(told[2:]), render_chat(told[:1])]
    left = change_text(column, lambda some: some.str.replace("one", "").str.replace("g", "g1"))
    assert left.to_list() == [
        render_chat([("assistant", "g1"), *told[2:]]),
        "g1",
        render_chat(told[2:]),
        "",
    ]


def test_people_and_other_tools_read_a_document():
    chat = render_chat([("user", "Hi"), ("Anna", "and I"), ("assistant", "Ho")])
    assert readable(chat) == "User: Hi\nUser: Anna: and I\nAssistant: Ho"
    assert spelled(chat) == (
        "<|user_start|>Hi<|turn_end|><|user_start|>Anna: and I<|turn_end|>"
        "<|assistant_start|>Ho<|turn_end|>"
    )
    assert readable(" as it is ") == " as it is "
