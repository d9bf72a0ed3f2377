"""What of a text stands in the training text: spans with their passages, prompts with what is
expected of them, and validation documents."""

from pathlib import Path

import numpy as np
import pytest

from tests.tokens.clean_text import write_clean
from tests.tokens.packing import index_here
from tokenmill.core.errors import UserError
from tokenmill.evaluation.results import Question
from tokenmill.evaluation.trace import PASSAGE_CHARS, Tracer
from tokenmill.formats.chat import render_chat
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer

CHAT = render_chat([("user", "Who wrote Hamlet?"), ("assistant", "Shakespeare wrote Hamlet.")])
LONG = " ".join(f"word{number}" for number in range(100))
DOCUMENTS = [CHAT, LONG, "Shakespeare wrote plays.", "A cat moos.", "held out"]
SOURCES = ["chats.jsonl", "long.txt", "short.txt", "short.txt", "validation.txt"]


@pytest.fixture(scope="module")
def tracer(tmp_path_factory: pytest.TempPathFactory) -> Tracer:
    folder = tmp_path_factory.mktemp("trace")
    clean = write_clean(folder / "clean", DOCUMENTS, sources=SOURCES)
    file = folder / "tokenizer.json"
    train_tokenizer(clean, file, TokenizerParams(type="bpe", vocab_size=300, sample_bytes=10**6))
    split = TokenizeParams(split="auto", val_fraction=0.1)
    index = index_here(folder, clean, file, split)
    return Tracer.open(index, folder / "tokens", file, min_words=2)


def asked(prompt: str, expect: str | None) -> Question:
    return Question(prompt=prompt, expect=expect, left_out="")


def test_spans_name_the_place_they_come_from(tracer: Tracer) -> None:
    text = "Yes: Shakespeare wrote Hamlet and a cat moos."
    trace = tracer.trace(text)
    assert trace.text == text
    assert (trace.words, trace.copied) == (8, 5)
    found = [(text[span.start : span.stop], span.count) for span in trace.spans]
    assert found == [("Shakespeare wrote Hamlet", 1), ("cat moos.", 1)]
    chat, moos = (span.passages[0] for span in trace.spans)
    assert (chat.source, chat.document) == ("chats.jsonl", 1)
    assert chat.before + chat.text + chat.after == (
        "User: Who wrote Hamlet?\nAssistant: Shakespeare wrote Hamlet."
    )
    assert (moos.source, moos.document, moos.before) == ("short.txt", 4, "A ")


def test_rare_spans_come_first_and_own_what_they_share(tracer: Tracer) -> None:
    trace = tracer.trace("Shakespeare wrote Hamlet. Shakespeare wrote")
    assert [span.count for span in trace.spans] == [1, 2]
    assert "".join(text for text, _ in trace.pieces()) == trace.text
    assert [number for _, number in trace.pieces()] == [1, 0, 2]


def test_a_passage_is_cut_between_words(tracer: Tracer) -> None:
    (span,) = tracer.trace("word50 word51").spans
    (passage,) = span.passages
    for side, words in ((passage.before, range(50)), (passage.after, range(52, 100))):
        assert len(side) <= PASSAGE_CHARS + 3
        assert set(side.split()) <= {"…", *(f"word{number}" for number in words)}
        assert "…" in side


@pytest.mark.parametrize(
    ("prompt", "expect", "documents", "known"),
    [
        ("Who wrote Hamlet?", "Shakespeare wrote Hamlet.", 1, True),
        ("Who wrote Hamlet?", "Marlowe", 1, False),
        ("Who wrote Faust?", "Shakespeare wrote Hamlet.", 0, False),
        ("A cat", None, 1, None),
    ],
)
def test_a_prompt_is_known_with_what_is_expected(
    prompt: str, expect: str | None, documents: int, known: bool | None, tracer: Tracer
) -> None:
    found = tracer.prompt(asked(prompt, expect), "whatever")
    assert (found.prompt_documents, found.is_known) == (documents, known)


def test_a_planted_passage_is_found(tracer: Tracer) -> None:
    """In the second of three documents, and nothing across their ends."""
    tokenizer = tracer.tokenizer
    planted = "Nobody knows word7 word8 word9 word10 this."
    texts = ["A new one: word1 word2", planted, "word3 word4 and the end"]
    ids = [token for text in texts for token in [*tokenizer.encode(text), tokenizer.eot_id]]
    documents, passages = tracer.overlap(np.array(ids), 5)  # `word7` is letters and digits: two
    assert documents.tolist() == [1]
    assert [span.passages[0].text for span in passages] == ["word7 word8 word9 word10"]


def test_text_without_words_has_no_spans(tracer: Tracer) -> None:
    for text in ("", "…", "\n"):
        trace = tracer.trace(text)
        assert (trace.words, trace.copied, trace.spans) == (0, 0, [])


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    """Its ids would be other words."""
    clean = write_clean(tmp_path / "clean", DOCUMENTS, sources=SOURCES)
    own, other = (tmp_path / name / "tokenizer.json" for name in ("own", "other"))
    for file, size in ((own, 300), (other, 290)):
        params = TokenizerParams(type="bpe", vocab_size=size, sample_bytes=10**6)
        train_tokenizer(clean, file, params)
    split = TokenizeParams(split="auto", val_fraction=0.1)
    index = index_here(tmp_path, clean, own, split)
    with pytest.raises(UserError, match="other/tokenizer"):
        Tracer.open(index, tmp_path / "tokens", other, min_words=2)


def test_an_index_is_of_the_training_text_only(tracer: Tracer) -> None:
    assert not tracer.trace("held out").spans
