"""Chats as sequences: what counts, where each lies, who is held out."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.evaluation.trained import make_tokenizer_file
from tests.tokens.clean_text import write_clean
from tokenmill.core.errors import UserError
from tokenmill.finetuning import chats as chats_module
from tokenmill.finetuning.chats import EXAMPLES, EncodedChat, pack_chats, read_chats
from tokenmill.finetuning.chats import encode as encode_column
from tokenmill.formats.chat import TURN_END, Document, render_chat
from tokenmill.formats.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.model.ops import IGNORED

TURNS = [
    ("system", "Be short."),
    ("user", "Hi!"),
    ("assistant", "Hello, you."),
    ("user", "Bye."),
    ("assistant", "Bye!"),
]
TWO_TURNS = render_chat(TURNS)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    return read_tokenizer(make_tokenizer_file(tmp_path_factory.mktemp("tokenizer"), "bpe"))


def encode(text: str, tokenizer: TextTokenizer) -> EncodedChat:
    """A chat among others."""
    return encode_column(pl.Series(["Before.", text, TWO_TURNS]), tokenizer)[1]


def answered(text: str, tokenizer: TextTokenizer) -> list[str]:
    """What counts in a chat: the document of each run of tokens."""
    each = encode(text, tokenizer)
    edges = np.flatnonzero(np.diff([0, *each.answers.astype(int), 0]))
    runs = [each.ids[start:stop].tolist() for start, stop in edges.reshape(-1, 2)]
    return [tokenizer.decode_document(run) for run in runs]


def test_answers_and_the_ends_of_their_turns_count(tokenizer: TextTokenizer):
    assert answered(TWO_TURNS, tokenizer) == [f"Hello, you.{TURN_END}", f"Bye!{TURN_END}"]


def test_every_token_of_a_chat_is_there(tokenizer: TextTokenizer):
    assert tokenizer.decode_document(encode(TWO_TURNS, tokenizer).ids.tolist()) == TWO_TURNS


def test_a_question_without_answer_is_left_out(tokenizer: TextTokenizer):
    each = encode(render_chat([*TURNS, ("user", "Still there?")]), tokenizer)
    assert tokenizer.decode_document(each.ids.tolist()) == TWO_TURNS


@pytest.mark.parametrize(
    "text", ["", "No chat at all.", "Assistant: Hi!", render_chat([("user", "Hi!")])]
)
def test_what_has_no_answer_counts_nothing(text: str, tokenizer: TextTokenizer):
    assert not encode(text, tokenizer).answers.any()


def test_answers_of_any_letters_count(tokenizer: TextTokenizer):
    text = render_chat([("user", "Wie heißt du? 你好"), ("assistant", "Ärger 😀 heiß ich")])
    assert answered(text, tokenizer) == [f"Ärger 😀 heiß ich{TURN_END}"]


def test_an_answer_may_spell_a_turn(tokenizer: TextTokenizer):
    said = "Hm.\nUser: and <|turn_end|><|user_start|>you?"
    text = render_chat([("user", "Hi!"), ("assistant", said), ("user", "Assistant: I?")])
    assert answered(text, tokenizer) == [said + TURN_END]


def test_results_of_tools_are_no_answers(tokenizer: TextTokenizer):
    text = render_chat(
        [("user", "2+2?"), ("assistant", "add(2, 2)"), ("tool", "4"), ("assistant", "4.")]
    )
    assert answered(text, tokenizer) == [f"add(2, 2){TURN_END}", f"4.{TURN_END}"]


def chats_of(sizes: Sequence[int]) -> list[EncodedChat]:
    """Chats of distinct tokens, of which the later half counts."""
    starts = np.cumsum([1, *sizes[:-1]])
    return [
        EncodedChat(np.arange(start, start + size, dtype=np.int32), np.arange(size) >= size // 2)
        for start, size in zip(starts, sizes, strict=True)
    ]


def test_each_packed_chat_is_whole_and_once():
    sizes = np.random.default_rng(0).integers(2, 18, 60).tolist()
    chats = chats_of(sizes)
    layers = pack_chats(chats, 16)
    inputs, targets, starts = layers.transpose(1, 0, 2)
    whole = {
        tuple(each.ids[:-1]): np.where(each.answers[1:], each.ids[1:], IGNORED) for each in chats
    }
    for row in range(len(layers)):
        for start in np.unique(starts[row]):
            here = starts[row] == start
            assert here[start]
            if (ids := tuple(inputs[row, here])) in whole:
                assert (targets[row, here] == whole.pop(ids)).all()
            else:
                assert not any(ids)
                assert (targets[row, here] == IGNORED).all()
    assert not whole
    assert (targets != IGNORED).any(axis=1).all(), "each sequence has a chat"
    assert len(layers) <= 1.1 * sum(size - 1 for size in sizes) / 16 + 1
    assert len(pack_chats(chats_of([6, 6, 12, 12]), 16)) == 2, "the longest come first"
    assert len(pack_chats(chats_of([12, 11, 4, 3, 3, 3, 3]), 16)) == 2, "into the least room"


def exchange(number: int, answer: str = "It is", *, more: str = "") -> Document:
    turns = [("user", f"What is number {number}?"), ("assistant", f"{answer} {number}.")]
    return render_chat([*turns, ("user", more)])


def test_a_hash_chooses_what_is_held_out(
    tmp_path: Path, tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
):
    """Also of texts that are left out, and however many are encoded at a time."""
    monkeypatch.setattr(chats_module, "BATCH", 100)
    texts = [*map(exchange, range(400)), *(f"Text {number}." for number in range(40))]
    clean = write_clean(tmp_path / "clean", texts)
    found = read_chats(clean, tokenizer, context_length=64, held_out=0.25)
    assert found["train"].chats + found["val"].chats == 400
    assert 70 <= found["val"].chats <= 130
    assert found["train"].left_out + found["val"].left_out == 40
    assert 3 <= found["val"].left_out <= 20
    for split in found.values():
        text_tokens = split.answer_tokens - split.chats  # without the end of each turn
        assert split.bytes_per_token == split.answer_bytes / text_tokens
    fewer = write_clean(tmp_path / "fewer", [exchange(number) for number in range(0, 400, 2)])
    assert (
        read_chats(fewer, tokenizer, context_length=64, held_out=0.25)["val"].chats
        < found["val"].chats
    )


def test_some_held_out_chats_are_kept_as_text(tmp_path: Path, tokenizer: TextTokenizer):
    texts = [exchange(number) for number in range(60)] + [
        exchange(number, more="And?") for number in range(60, 99)
    ]
    found = read_chats(
        write_clean(tmp_path / "clean", texts), tokenizer, context_length=64, held_out=0.2
    )["val"]
    whole = [exchange(number) for number in range(99)]
    assert found.chats > EXAMPLES == len(set(found.examples))
    assert [text for text in whole if text in found.examples] == found.examples
    assert whole.index(found.examples[-1]) > 50, "spread over all"


def test_long_chats_are_cut_and_counted(tmp_path: Path, tokenizer: TextTokenizer):
    texts = [exchange(number, "It is " * 60) for number in range(40)] + [
        exchange(number) for number in range(40)
    ]
    clean = write_clean(
        tmp_path / "clean",
        [*texts, "Just text.", render_chat([("user", "why " * 99), ("assistant", "So.")])],
    )
    found = read_chats(clean, tokenizer, context_length=40, held_out=0.2).values()
    assert sum(split.chats for split in found) == 80
    assert sum(split.cut for split in found) == 40
    assert sum(split.left_out for split in found) == 2
    for split in found:
        assert split.answer_tokens == (split.layers[:, 1] != IGNORED).sum()
        assert split.answer_bytes > 0
        assert all(len(tokenizer.encode_document(text)) <= 41 for text in split.examples)


def test_the_token_behind_the_context_is_a_target(tmp_path: Path, tokenizer: TextTokenizer):
    late = render_chat([("user", "why " * 99), ("assistant", "So.")])
    clean = write_clean(tmp_path / "clean", [*map(exchange, range(40)), late])

    def without(context_length: int) -> tuple[int, int]:
        """The numbers of chats that are left out, and that are cut."""
        found = read_chats(clean, tokenizer, context_length=context_length, held_out=0.2).values()
        return sum(split.left_out for split in found), sum(split.cut for split in found)

    chat = encode(late, tokenizer)
    first, tokens = int(chat.answers.argmax()), len(chat.ids)
    assert without(first - 1) == (1, 0)
    assert without(first) == (0, 1)
    assert without(tokens - 2) == (0, 1)
    assert without(tokens - 1) == (0, 0)


@pytest.mark.parametrize("context_length", [40, 41, 42])
def test_a_cut_character_has_the_bytes_that_are_left(
    tmp_path: Path, tokenizer: TextTokenizer, context_length: int
):
    texts = [
        render_chat([("user", f"{number:02}"), ("assistant", "答" * 99)]) for number in range(40)
    ]
    clean = write_clean(tmp_path / "clean", texts)
    for split in read_chats(clean, tokenizer, context_length=context_length, held_out=0.2).values():
        assert split.answer_bytes == split.answer_tokens  # a byte is a token here


def test_chats_on_one_side_only_are_refused(tmp_path: Path, tokenizer: TextTokenizer):
    clean = write_clean(tmp_path / "clean", [exchange(1)])
    with pytest.raises(UserError, match=r"finetune\.data"):
        read_chats(clean, tokenizer, context_length=64, held_out=0.5)
