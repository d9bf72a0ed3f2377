"""The page's tokenizer gives the ids of Hugging Face `tokenizers`, for every text."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluation.trained import make_tokenizer_file
from tests.publish.node import Node, needs_node, running
from tokenmill.formats.chat import TURN_TOKENS, Document, chat_prompt, plain
from tokenmill.formats.tokenizer import END_OF_TEXT, TextTokenizer, read_tokenizer

pytestmark = needs_node

PIECES = [
    *(
        "'s",
        "'re",
        "'LL",
        "don't",
        "  ",
        "   x",
        " \n\n ",
        "\t",
        "\x85",
        "\u3000",
        "\ufeff",
        "\x1c",
    ),
    *("12", "Ⅻ", "½", "٣", "é", "e\u0301", "ß", "你好", "שלום", "👩‍👩‍👧", "🏳️‍🌈", "\u200b", "\x00"),
    *("\u0890", "\ua7f2", "\U00031350", "\U0001fae8"),  # newer than Unicode 13
    *(END_OF_TEXT, *TURN_TOKENS.values(), *TURN_TOKENS, "\n\nUser: ", "the the", "aaaaaaaa"),
]
TEXTS = st.lists(
    st.sampled_from(PIECES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    max_size=12,
).map("".join)
LEARNED = [
    "The theory: don't you'll we're   the  thing\n\n it's 2024, 12345 and ½.",
    "你好 世界 naïve café שלום 🙂🙂 Ⅻ ٣٣ e\u0301e\u0301 \u3000\u3000 \x85 the\u00a0the",
    "\ua7f2\ua7f2 a\u0890a\u0890 \U0001fae8\U0001fae8 aaaa aaaaaaaa '''s 's",
] * 20


@pytest.fixture(scope="module", params=["bpe", "char"])
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TextTokenizer:
    folder = tmp_path_factory.mktemp(request.param)
    return read_tokenizer(make_tokenizer_file(folder, request.param, LEARNED))


@pytest.fixture(scope="module")
def taken(tokenizer: TextTokenizer) -> Iterator[Node]:
    with running() as node:
        node.take(tokenizer)
        yield node


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_ids_and_text_are_equal(taken: Node, tokenizer: TextTokenizer, data: st.DataObject):
    text = data.draw(TEXTS)
    asked = plain(text)
    unknown = tokenizer.unknown(asked)
    assert set(taken.ask("unknown", text=asked)) == set(unknown)
    ids = tokenizer.encode("".join(char for char in asked if char not in unknown))
    assert taken.ask("encode", text=text) == ids
    assert taken.ask("decode", ids=ids) == tokenizer.decode(ids)
    some = data.draw(st.lists(st.sampled_from(range(6, tokenizer.vocab_size)), max_size=8))
    assert taken.ask("decode", ids=some) == tokenizer.decode(some)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_conversations_are_equal(taken: Node, tokenizer: TextTokenizer, data: st.DataObject):
    turns = data.draw(st.lists(TEXTS, max_size=4))
    turns = ["".join(c for c in text if not tokenizer.unknown(plain(c))) for text in turns]
    messages = [("assistant" if n % 2 else "user", text) for n, text in enumerate(turns)]
    if all(plain(text).strip() for text in turns):
        expected = tokenizer.encode_document(Document(chat_prompt(messages)))
        asked = [{"role": role, "content": content} for role, content in messages]
        assert taken.ask("chat", messages=asked) == expected


@settings(max_examples=30, deadline=None)
@given(
    turns=st.lists(st.text("ab ", max_size=12), max_size=6),
    limit=st.integers(min_value=1, max_value=40),
)
def test_the_newest_messages_that_fit_are_kept(taken: Node, turns: list[str], limit: int):
    messages = [{"role": "user", "content": text} for text in turns]
    rest = messages
    while len(rest) > 1 and len(taken.ask("chat", messages=rest)) > limit:
        rest = rest[1:]
    assert taken.ask("newest", messages=messages, limit=limit) == rest


def test_a_long_word_is_encoded(taken: Node, tokenizer: TextTokenizer):
    text = "a" * 10_000
    assert taken.ask("encode", text=text) == tokenizer.encode(text)
