"""Prompts are rendered, encoded and checked; openings of held-out text begin and follow; repetition
is measured."""

from pathlib import Path

import numpy as np
import pytest

from tests.evaluation.test_evaluate import sections
from tests.evaluation.trained import make_tokenizer_file
from tests.tokens.clean_text import write_clean
from tests.tokens.packing import pack_here
from tokenmill.core.errors import UserError
from tokenmill.evaluation import prompts
from tokenmill.evaluation.evaluate import repetition
from tokenmill.evaluation.prompts import (
    MOST_BYTES,
    MOST_OPENINGS,
    MOST_PROMPTS,
    Place,
    Prompt,
    PromptParams,
    chosen_prompts,
    encode_prompts,
    first_questions,
    openings,
    places,
)
from tokenmill.evaluation.results import Question
from tokenmill.formats.chat import START, Document, chat_prompt, render_chat
from tokenmill.formats.token_file import TokenizerType
from tokenmill.formats.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.tokens.params import TokenizeParams
from tokenmill.tokens.unpack import unpack


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    return read_tokenizer(make_tokenizer_file(tmp_path_factory.mktemp("tokenizer"), "char"))


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], 0.0),
        ([1, 2, 3], 0.0),
        ([1, 2, 3, 4, 5], 0.0),
        ([7] * 13, 0.9),  # ten 4-grams, one kind
        ([1, 2, 3, 4] * 2, 0.2),  # five 4-grams, the last is the first
        ([1, 2, 3, 4, 1, 2, 3, 5], 0.0),
    ],
)
def test_repetition_is_the_fraction_of_4_grams_seen_before(ids: list[int], expected: float):
    assert repetition(ids) == pytest.approx(expected)


def test_only_questions_are_put_into_the_template(tokenizer: TextTokenizer):
    entries = [PromptParams(user="one?", expect="two"), PromptParams(text="one?")]
    question, text = encode_prompts(entries, tokenizer, context_length=100, mode="balanced")
    assert question.question == Question(prompt="one?", expect="two", left_out="")
    assert text.question == Question(prompt="one?", expect=None, left_out="", kind="text")
    assert question.ids == tokenizer.encode_document(chat_prompt([("user", "one?")]))
    assert text.ids == tokenizer.encode("one?")
    assert len(question.ids) > len(text.ids)
    assert (question.ends_with_turn, text.ends_with_turn) == (True, False)


def test_unknown_characters_are_left_out_and_named(tokenizer: TextTokenizer):
    entries = [PromptParams(text="o→n§e→?")]
    (prompt,) = encode_prompts(entries, tokenizer, context_length=100, mode="none")
    assert prompt.ids == tokenizer.encode("one?")
    assert prompt.question == Question(prompt="o→n§e→?", expect=None, left_out="§→", kind="text")


def test_prompt_must_fit_the_context(tokenizer: TextTokenizer):
    entries = [PromptParams(text="one"), PromptParams(text="one two")]
    assert len(encode_prompts(entries, tokenizer, context_length=7, mode="balanced")) == 2
    with pytest.raises(UserError, match=r"one two.* 7 .*model\.context_length \(6\)"):
        encode_prompts(entries, tokenizer, context_length=6, mode="balanced")
    with pytest.raises(UserError, match=r"→→.*tokenizer"):
        encode_prompts([PromptParams(text="→→")], tokenizer, context_length=6, mode="none")


def test_prompts_are_read_as_clean_writes_text(tmp_path: Path):
    """And shown as they were typed. The white space around them counts."""
    tokenizer = read_tokenizer(make_tokenizer_file(tmp_path, "bpe"))
    entries = [PromptParams(user="It’s “open”?", expect="It’s open — now"), PromptParams(text="… ")]
    question, text = encode_prompts(entries, tokenizer, context_length=100, mode="balanced")
    asked = Question(prompt="It’s “open”?", expect="It's open -- now", left_out="")
    assert question.question == asked
    assert question.ids == tokenizer.encode_document(chat_prompt([("user", 'It\'s "open"?')]))
    assert text.ids == tokenizer.encode("... ")
    [blank] = encode_prompts(
        [PromptParams(text="\n")], tokenizer, context_length=9, mode="balanced"
    )
    assert blank.ids == tokenizer.encode("\n")


@pytest.mark.parametrize("expect", ["🙂", " 🙂"])
def test_what_clean_leaves_nothing_of_is_refused(tokenizer: TextTokenizer, expect: str):
    """An empty text would stand in every answer, and a blank in most."""
    entries = [PromptParams(user="one", expect=expect)]
    with pytest.raises(UserError, match=r"expect: +🙂.*clean\.mode \(balanced\)"):
        encode_prompts(entries, tokenizer, context_length=100, mode="balanced")


# --- which prompts


def chosen(raw: Path, tokenizer: TextTokenizer) -> list[Question]:
    auto = sections(raw, prompts="auto", max_new_tokens=3)
    found = chosen_prompts(auto, raw, tokenizer, context_length=9)
    return [prompt.question for prompt in found]


def write_prompts(folder: Path, text: str) -> Path:
    (folder / "prompts.yaml").write_text(text)
    return folder


def test_auto_takes_the_prompts_beside_the_raw_text(tmp_path: Path, tokenizer: TextTokenizer):
    raw = write_prompts(
        tmp_path, "prompts:\n- {user: one?, expect: two, mark: held_out}\n- text: one\n"
    )
    assert chosen(raw, tokenizer) == [
        Question(prompt="one?", expect="two", left_out="", mark="held_out"),
        Question(prompt="one", expect=None, left_out="", kind="text"),
    ]


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        ("- user: one?\n", "must hold `prompts:`"),
        ("prompts: [{user: a, text: b}]", "either `user` or `text`"),
        ("prompts: [{expect: a}]", "either `user` or `text`"),
        ("prompts: [{usr: a}]", r"prompts\.0\.usr"),
        ("prompts: [", "not valid YAML"),
        ("prompts: &a [*a]", "more than"),
        ("prompts: [" + "{text: a}," * (MOST_PROMPTS + 1) + "]", f"at most {MOST_PROMPTS:,}"),
        ("#" * (MOST_BYTES + 1), f"may have {MOST_BYTES:,}"),
    ],
)
def test_unusable_prompts_beside_the_text_are_refused(
    tmp_path: Path, tokenizer: TextTokenizer, content: str, refusal: str
):
    with pytest.raises(UserError, match=refusal) as refused:
        chosen(write_prompts(tmp_path, content), tokenizer)
    assert "prompts.yaml" in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_prompts_from_outside_the_raw_text_are_refused(tmp_path: Path, tokenizer: TextTokenizer):
    outside = write_prompts(tmp_path, "prompts: [{text: one}]") / "prompts.yaml"
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "prompts.yaml").symlink_to(outside)
    with pytest.raises(UserError, match=r"is a link out of data\.raw"):
        chosen(raw, tokenizer)


CHAT = render_chat(
    [("user", "count?"), ("assistant", "one two"), ("user", "more?"), ("assistant", "three")]
)
SYSTEM = render_chat([("system", "Be terse."), ("user", "count?"), ("assistant", "one two")])
PROSE = "the cat sat on the mat and the dog lay by the door until the evening came and it was dark"


def of(
    folder: Path,
    texts: list[str],
    *,
    context_length: int = 64,
    length: int = 16,
    kind: TokenizerType = "char",
) -> list[Prompt]:
    """The prompts from `texts` as validation text."""
    tokenizer = make_tokenizer_file(folder, kind, [*texts, "word " * 40])
    clean = write_clean(folder / "both", ["word " * 40, *texts])
    share = sum(map(len, texts)) / (200 + sum(map(len, texts)))
    pack_here(
        clean,
        tokenizer,
        folder / "packed",
        TokenizeParams(split="tail", val_fraction=min(share, 0.5)),
    )
    unpack(folder / "packed", folder / "tokens")
    reader: TextTokenizer = read_tokenizer(tokenizer)
    return openings(folder / "tokens", reader, context_length=context_length, max_new_tokens=length)


COUNT = Question(prompt="count?", expect=None, left_out="", truth="one two")


def test_conversation_is_asked_its_first_question(tmp_path: Path):
    [found] = of(tmp_path, [CHAT])
    assert found.question == COUNT
    reader = read_tokenizer(tmp_path / "tokenizer.json")
    assert found.ids == reader.encode_document(chat_prompt([("user", "count?")]))
    assert found.ends_with_turn


def test_only_conversations_have_a_first_question(tokenizer: TextTokenizer):
    texts = [Document("the cat sat"), CHAT]
    [found] = first_questions(texts, tokenizer, context_length=64, max_new_tokens=16)
    assert found.question == COUNT
    asked = len(found.ids)
    for context_length, fits in ((asked, True), (asked - 1, False)):
        assert fits == bool(
            first_questions(texts, tokenizer, context_length=context_length, max_new_tokens=16)
        )


def test_an_answer_is_as_long_as_the_model_may_write(tmp_path: Path):
    """In whole characters; each byte of these is a token."""
    tokenizer = read_tokenizer(make_tokenizer_file(tmp_path, "bpe"))
    chat = render_chat([("user", "count?"), ("assistant", "一二三")])
    for most in range(3, 13):
        [found] = first_questions([chat], tokenizer, context_length=64, max_new_tokens=most)
        assert found.question.truth == "一二三"[: most // 3]


def test_a_middle_begins_at_its_next_line_or_else_word():
    for gap, rest in (("x\n", "two"), ("x ", "y" * prompts.LINE_CHARS + "\ntwo")):
        assert prompts._from_line(gap + rest) == rest


def test_system_message_stays_before_the_question(tmp_path: Path):
    [found] = of(tmp_path, [SYSTEM])
    shown = "System: Be terse.\nUser: count?\nAssistant:"
    assert found.question == COUNT.model_copy(update={"prompt": shown, "kind": "text"})
    whole = chat_prompt([("system", "Be terse."), ("user", "count?")])
    assert found.ids == read_tokenizer(tmp_path / "tokenizer.json").encode_document(whole)
    assert found.ends_with_turn


def test_text_begins_with_whole_words_and_the_true_text_follows(tmp_path: Path):
    [opening] = of(tmp_path, [PROSE])
    assert opening.question.prompt == "the cat sat on the mat and the dog lay by"
    assert opening.question.truth == "the door until"
    assert not opening.ends_with_turn


@pytest.mark.parametrize("text", ["", "o", "on    "])
def test_a_text_needs_a_beginning_and_what_follows(text: str, tokenizer: TextTokenizer):
    """As what is left behind the last line break of a long text may be."""
    assert prompts._beginning(Document(text), tokenizer, 64, 16) is None


def test_question_beyond_the_context_is_only_begun(tmp_path: Path):
    [opening] = of(tmp_path, [CHAT], context_length=8)
    begun = Document(START["user"] + "cou")
    assert opening.ids == read_tokenizer(tmp_path / "tokenizer.json").encode_document(begun)
    assert opening.ends_with_turn
    asked = opening.question
    assert (asked.kind, asked.prompt, asked.truth) == ("text", "User: cou", "nt?")


def test_long_text_is_opened_at_even_distances_at_words(tmp_path: Path):
    words = [f"w{number}" for number in range(400)]
    found = of(tmp_path, ["word " * 100, " ".join(words)], length=4)
    assert len(found) == MOST_OPENINGS
    texts = [opening.question.prompt for opening in found[1:]]
    numbers = [int(text.split()[0][1:]) for text in texts]
    assert numbers == sorted(set(numbers))
    assert all(text in " ".join(words) for text in texts)


LINES = "".join(f"Zeile {i}: grün, blau und süß sind {i * 7919 % 101} Töne.\n" for i in range(300))
CHATS = [
    render_chat(
        [("user", f"how many are {i} and {i * 37 % 17}?"), ("assistant", "many " * (1 + i % 40))]
    )
    for i in range(60)
]


@pytest.mark.parametrize(
    "texts",
    [
        [LINES],
        CHATS,
        [LINES[: 400 * n] for n in range(1, 9)],
        [LINES, *CHATS],
        ["天地玄黄，宇宙洪荒。" * 400],
    ],
    ids=["one long text", "chats", "texts", "both", "no spaces"],
)
def test_every_tokenizer_and_context_is_asked_the_same(tmp_path: Path, texts: list[str]):
    asked = []
    runs: list[tuple[TokenizerType, int]] = [("char", 128), ("bpe", 128), ("bpe", 512)]
    for kind, context_length in runs:
        folder = tmp_path / f"{kind}-{context_length}"
        folder.mkdir()
        found = of(folder, texts, context_length=context_length, length=5, kind=kind)
        asked.append([(one.question.kind, one.question.prompt) for one in found])
        if texts == [LINES]:
            assert all(one.question.prompt.startswith("Zeile ") for one in found)
    assert asked[0] == asked[1] == asked[2]
    assert len(asked[0]) >= min(len(texts), MOST_OPENINGS) > 0


@pytest.mark.parametrize("documents", [1, 3, 10, 500])
def test_documents_are_opened_once_and_evenly(documents: int):
    ids = np.concatenate([[number + 1] * 7 + [0] for number in range(documents)])
    found = list(places(ids, np.array([0] + [9] * documents), 0))
    assert len(found) == len(set(found)) == min(documents, MOST_OPENINGS)
    assert all(place.token % 8 == 0 and not place.is_middle for place in found)


def test_places_are_the_same_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch):
    ids = np.array([*[1, 2, 3, 4, 0] * 40, *[5, 6, 7] * 203, 0])
    sizes = np.array([0, 9, 2, 3, 1, 8, 1, 11])
    whole = list(places(ids, sizes, 0))
    assert any(place.is_middle and place.skipped for place in whole)
    for size in range(1, 20):
        monkeypatch.setattr(prompts, "BLOCK", size)
        assert list(places(ids, sizes, 0)) == whole


def test_documents_too_short_to_begin_are_passed_over():
    """Those of fewer than eight bytes, however many they are."""
    sizes = np.array([0, 4, 7])
    assert list(places(np.array([2, 0, 1, 0, 1, 1, 0, 1, 0]), sizes, 0)) == [Place(4)]
    assert list(places(np.array([2, 0] * 500), sizes, 0)) == []
