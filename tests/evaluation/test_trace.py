"""What of a text stands in the training text: spans with their passages, prompts with what is
expected of them, and validation documents."""

import math
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.tokens.clean_text import write_clean
from tests.tokens.packing import index_here
from tokenmill.core.errors import UserError
from tokenmill.evaluation.results import Answer, EpochResult, Evaluation, Question
from tokenmill.evaluation.trace import (
    PASSAGE_CHARS,
    PromptTrace,
    Trace,
    Tracer,
    Traces,
    _bits_per_byte,
    trace_evaluation,
)
from tokenmill.formats.chat import render_chat
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer

CHAT = render_chat([("user", "Who wrote Hamlet?"), ("assistant", "Shakespeare wrote Hamlet.")])
LONG = " ".join(f"word{number}" for number in range(100))
FAUST = "She wrote Faust, yes, and they wrote Faust. You wrote Romeo."
DOCUMENTS = [CHAT, LONG, "Shakespeare wrote plays.", FAUST, "A cat moos.", "held out"]
SOURCES = ["chats.jsonl", "long.txt", *["short.txt"] * 3, "validation.txt"]


def tracer_of(folder: Path, documents: list[str], sources: list[str], min_words: int) -> Tracer:
    """For the training text of these documents."""
    clean = write_clean(folder / "clean", documents, sources=sources)
    file = folder / "tokenizer.json"
    train_tokenizer(clean, file, TokenizerParams(type="bpe", vocab_size=300, sample_bytes=10**6))
    split = TokenizeParams(split="auto", val_fraction=0.1)
    index = index_here(folder, clean, file, split)
    return Tracer.open(index, folder / "tokens", file, min_words=min_words)


@pytest.fixture(scope="module")
def tracer(tmp_path_factory: pytest.TempPathFactory) -> Tracer:
    return tracer_of(tmp_path_factory.mktemp("trace"), DOCUMENTS, SOURCES, min_words=2)


def test_spans_name_the_place_they_come_from(tracer: Tracer) -> None:
    text = "Yes: Shakespeare wrote Hamlet and a cat moos"
    trace = tracer.trace(text)
    assert trace.text == text
    assert (trace.words, trace.copied) == (8, 5)
    found = [(text[span.start : span.stop], span.count) for span in trace.spans]
    assert found == [("Shakespeare wrote Hamlet", 1), ("cat moos", 1)]
    chat, moos = (span.passages[0] for span in trace.spans)
    assert (chat.source, chat.document) == ("chats.jsonl", 1)
    assert chat.before + chat.text + chat.after == (
        "User: Who wrote Hamlet?\nAssistant: Shakespeare wrote Hamlet."
    )
    assert (moos.source, moos.document, moos.before, moos.after) == ("short.txt", 5, "A ", ".")


def test_rare_spans_come_first_and_own_what_they_share(tracer: Tracer) -> None:
    trace = tracer.trace("Shakespeare wrote Romeo. Shakespeare wrote")
    assert [span.count for span in trace.spans] == [1, 2, 2]
    assert trace.pieces() == [
        ("Shakespeare ", 2),
        ("wrote Romeo.", 1),
        (" ", 0),
        ("Shakespeare wrote", 3),
    ]


def test_what_stands_twice_in_a_document_is_counted_twice(tracer: Tracer) -> None:
    for passages in (1, 2):
        (span,) = tracer.trace("He wrote Faust!", passages=passages).spans
        assert (span.count, span.documents) == (2, 1)
        assert [passage.before for passage in span.passages] == [
            "She ",
            "She wrote Faust, yes, and they ",
        ][:passages]


def test_a_passage_is_cut_between_words(tracer: Tracer) -> None:
    (span,) = tracer.trace("See word50 word51").spans
    (passage,) = span.passages
    assert (span.start, passage.text) == (len("See "), "word50 word51")
    assert passage.before.endswith(" word49 ")
    for side, words in ((passage.before, range(50)), (passage.after, range(52, 100))):
        assert len(side) <= PASSAGE_CHARS + 3
        assert set(side.split()) <= {"…", *(f"word{number}" for number in words)}
        assert "…" in side


def test_a_passage_without_spaces_is_cut_too(tmp_path: Path) -> None:
    """As one of Chinese or Japanese."""
    signs = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    found = tracer_of(tmp_path, [f"{signs} planted {signs}", "held out"], SOURCES[-2:], min_words=1)
    (span,) = found.trace("planted").spans
    (passage,) = span.passages
    assert passage.before == f"… {signs[1 - PASSAGE_CHARS :]} "
    assert passage.after == f" {signs[: PASSAGE_CHARS - 1]} …"


@pytest.mark.parametrize(
    ("prompt", "expect", "documents", "known"),
    [
        ("Who wrote Hamlet?", "Shakespeare wrote Hamlet.", 1, True),
        ("Who wrote Hamlet?", "Marlowe", 1, False),
        ("Who wrote Faust?", "Shakespeare wrote Hamlet.", 0, False),
        ("A cat", None, 1, None),
        ("?", None, 0, None),
    ],
)
def test_a_prompt_is_known_with_what_is_expected(
    prompt: str, expect: str | None, documents: int, known: bool | None, tracer: Tracer
) -> None:
    found = tracer.prompt(prompt, expect, "whatever")
    assert (found.prompt_documents, found.is_known) == (documents, known)


def test_what_few_documents_lack_others_may_have(
    tracer: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two documents have the prompt, and one of them, the first or the second, is read."""
    monkeypatch.setattr("tokenmill.evaluation.trace.MOST_DOCUMENTS", 1)
    known = [
        tracer.prompt("Shakespeare wrote", expect, "").is_known for expect in ("Hamlet", "plays")
    ]
    assert known == [True, None]


@pytest.mark.parametrize("gap", [" ", "\n", "\n\n    "])
def test_a_planted_passage_is_found(gap: str, tracer: Tracer) -> None:
    """In the second of three documents, wherever its lines break, and nothing across their ends."""
    tokenizer = tracer.tokenizer
    planted = f"Nobody knows word7{gap}word8 word9{gap}word10 this."
    texts = ["A new one: word1 word2", planted, "word3 word4 and the end"]
    ids = [token for text in texts for token in [*tokenizer.encode(text), tokenizer.eot_id]]
    documents, passages = tracer.overlap(np.array(ids), 5)  # `word7` is letters and digits: two
    assert documents.tolist() == [False, True, False]
    assert [span.passages[0].text for span in passages] == ["word7 word8 word9 word10"]


def test_a_long_passage_takes_few_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each compares the rest of it: one for each word would take quadratic time."""
    draw = random.Random(0)
    book = " ".join(draw.choice(["sea", "sky", "sun", "rain", "wind"]) for _ in range(5000))
    search = tracer_of(tmp_path, [book, "held out"], SOURCES[-2:], min_words=100).search
    searched: list[int] = []
    longest = search.longest
    monkeypatch.setattr(search, "longest", lambda one: searched.append(len(one)) or longest(one))
    (span,) = search.spans(search.tokenizer.encode(f"A book: {book}. Its end."), min_words=100)
    assert (span.words, span.count) == (5000, 1)
    assert sum(searched) < 500


SHARES = [(10, 1), (4, 4), (6, 1)]
"""The words of answers, and how many of them are copied."""

QUESTION = Question(prompt="A cat", expect="moos", left_out="")
VALIDATION = [f"{LONG[:60]}.", "Something else.", f"Or {LONG[50:110]}"]


@pytest.fixture
def losses() -> pl.DataFrame:
    """Of VALIDATION, at two epochs."""
    sizes = [len(text) for text in VALIDATION]
    return pl.DataFrame(
        {"epoch": [1] * 3 + [2] * 3, "bytes": 2 * sizes, "loss": [9.0, 9.0, 9.0, 1.0, 7.0, 2.0]}
    )


def traced(folder: Path, losses: pl.DataFrame, overlap_words: int) -> Traces:
    """What VALIDATION shares with the training text."""
    sources = [*SOURCES[:-1], *["validation.txt"] * 3]
    clean = write_clean(folder / "clean", [*DOCUMENTS[:-1], *VALIDATION], sources=sources)
    file = folder / "tokenizer.json"
    train_tokenizer(clean, file, TokenizerParams(type="bpe", vocab_size=300, sample_bytes=10**6))
    index = index_here(folder, clean, file, TokenizeParams(split="auto", val_fraction=0.1))
    numbers = dict.fromkeys(("train_loss", "val_loss", "perplexity", "bits_per_byte"), 1.0)
    epochs = [
        EpochResult(
            epoch=epoch,
            answers=[Answer(greedy=greedy, sampled="no", found=False, repetition=0.0)],
            **numbers,
        )
        for epoch, greedy in ((1, "nothing"), (2, "A cat moos"))
    ]
    return trace_evaluation(
        Evaluation(questions=[QUESTION], epochs=epochs),
        [QUESTION.prompt],
        losses,
        Tracer.open(index, folder / "tokens", file, min_words=2),
        tokens=folder / "tokens",
        tokenizer_file=file,
        overlap_words=overlap_words,
        validation_bytes=None,
    )


def test_the_clean_part_is_what_shares_nothing(tmp_path: Path, losses: pl.DataFrame) -> None:
    """At the last epoch; a planted passage is the difference from the whole."""
    found = traced(tmp_path / "some", losses, 10)
    (prompt,) = found.prompts
    assert (prompt.prompt_documents, prompt.is_known) == (1, True)
    assert (prompt.answer.text, prompt.answer.copied) == ("A cat moos", 3)
    assert len(found.overlaps) == 2
    assert (found.overlapping_documents, found.validation_documents) == (2, 3)
    assert any(span.passages[0].text.startswith("word0 ") for span in found.overlaps)
    expected = 7 / math.log(2) / len(VALIDATION[1])
    assert found.clean_bits_per_byte == pytest.approx(expected)
    assert found.metrics()["clean_bits_per_byte"] == pytest.approx(expected, rel=1e-5)
    whole = traced(tmp_path / "none", losses, 50)
    assert whole.overlapping_documents == 0
    assert whole.clean_bits_per_byte == pytest.approx(10 / math.log(2) / sum(map(len, VALIDATION)))


def test_metrics_are_shares_of_what_is_known() -> None:
    answers = [Trace(text="", words=words, copied=copied, spans=[]) for words, copied in SHARES]
    found = Traces(
        min_words=2,
        overlap_words=10,
        prompts=[
            PromptTrace(prompt_documents=0, is_known=known, answer=answer)
            for known, answer in zip((True, False, None), answers, strict=True)
        ],
        validation_documents=8,
        overlapping_documents=2,
        overlaps=[],
        clean_bits_per_byte=None,
    )
    assert found.metrics() == {
        "answers_copied": 0.3,
        "expected_in_training": 0.5,
        "validation_overlap": 0.25,
    }


def test_without_a_loss_of_each_nothing_is_clean(tmp_path: Path, losses: pl.DataFrame) -> None:
    found = traced(tmp_path / "none", losses.clear(), 10)
    assert found.clean_bits_per_byte is None
    assert "clean_bits_per_byte" not in found.metrics()
    assert _bits_per_byte(losses[:3], np.zeros(3, np.bool_)) is None, "each shares something"
    with pytest.raises(UserError, match="4 documents"):
        traced(tmp_path / "more", pl.concat([losses, losses[-1:]]), 10)


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
