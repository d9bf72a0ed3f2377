"""The built-in corpus: always the same bytes, true to its tables, varied, and of the right size."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from stages import sample as stage
from tokenmill.core.errors import UserError
from tokenmill.core.params import Section, load
from tokenmill.sample.generator import (
    Conversation,
    ConversationSource,
    SampleParams,
    conversations,
    json_line,
    write_sample,
)
from tokenmill.sample.subjects import FILES, Draw, Exchange, falling, questions

COUNT = 11_000
"""What params.yaml says in the repository."""

FIRST_1000_SHA256 = "d930dac0a9803997b41399d0f1e5cc571a02f5a32f714cc3193523f8554d1fe4"
"""Changed? If you did not mean to change the corpus, this is a bug: it must be the same on every machine, or
nobody's cache fits anybody else's. If you did, put the new hash here, check the size test, run `dvc repro`
(everything downstream runs again) and say in the changelog what changed."""

FACTUAL = [kind for name in FILES for kinds in questions(name).values() for kind in kinds if kind.followups]
CAPITALS = {fact["country"]: fact["capital"] for fact in questions("countries")["capitals"][0].facts}
FRANCE = Exchange("What is the capital of France?", "The capital of France is Paris.")


@pytest.fixture(scope="module")
def corpus() -> list[Conversation]:
    return list(conversations(seed=0, count=COUNT))


@pytest.fixture(scope="module")
def clean(corpus: list[Conversation]) -> list[Conversation]:
    """The conversations without a blemish."""
    return [conversation for conversation in corpus if conversation and not has_blemish(conversation)]


def has_blemish(conversation: Conversation) -> bool:
    question = conversation[0].question
    return question != question.strip() or "  " in question or any(c in question for c in "“”🙂\u200b")


# --- the same bytes, always -------------------------------------------------------------------------------------------


def test_first_thousand_conversations_are_golden() -> None:
    digest = hashlib.sha256(b"".join(map(json_line, conversations(seed=0, count=1000))))
    assert digest.hexdigest() == FIRST_1000_SHA256


def test_more_conversations_begin_with_the_same_ones() -> None:
    assert list(conversations(seed=3, count=300))[:100] == list(conversations(seed=3, count=100))


def test_another_seed_is_another_corpus() -> None:
    assert list(conversations(seed=0, count=20)) != list(conversations(seed=1, count=20))


# --- the file ---------------------------------------------------------------------------------------------------------


def test_stage_writes_json_lines_of_alternating_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("sample: {seed: 0, conversations: 500}\nmodel: {}\n")
    stage.main()
    assert [path.name for path in Path("data/raw/sample").iterdir()] == ["conversations.jsonl"]
    lines = Path("data/raw/sample/conversations.jsonl").read_bytes().splitlines(keepends=True)
    assert lines == list(map(json_line, conversations(seed=0, count=500)))
    for line in lines:
        messages = json.loads(line)["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2)
        assert all(message["content"].strip() for message in messages)


def test_file_has_the_promised_size(tmp_path: Path) -> None:
    write_sample(tmp_path / "sample.jsonl", SampleParams(seed=0, conversations=COUNT))
    assert 2.0e6 < (tmp_path / "sample.jsonl").stat().st_size < 2.5e6


@pytest.mark.parametrize("wrong", ["seed: 0, conversations: 0", "seed: -1, conversations: 1", "seed: 0"])
def test_wrong_parameters_are_refused_by_name(tmp_path: Path, wrong: str) -> None:
    class View(Section):
        sample: SampleParams

    (tmp_path / "params.yaml").write_text(f"sample: {{{wrong}}}\n")
    with pytest.raises(UserError, match=r"sample\.(seed|conversations)"):
        load(View, tmp_path / "params.yaml")


# --- what is said -----------------------------------------------------------------------------------------------------


def test_france_is_asked_for_in_exactly_these_words(clean: list[Conversation]) -> None:
    assert (FRANCE,) in clean
    answers = {exchange.answer for said in clean for exchange in said if exchange.question == FRANCE.question}
    assert answers == {FRANCE.answer}


def test_every_capital_is_the_right_one(clean: list[Conversation]) -> None:
    answers = {answer for said in clean for _, answer in said if answer.startswith("The capital of ")}
    assert answers == {f"The capital of {country} is {capital}." for country, capital in CAPITALS.items()}


def test_nearly_every_fact_is_told_common_ones_more_often(clean: list[Conversation]) -> None:
    told = Counter(exchange.answer for conversation in clean for exchange in conversation)
    facts = [kind.answers[0].format_map(fact) for kind in FACTUAL for fact in kind.facts]
    assert sum(told[answer] > 0 for answer in facts) > 0.98 * len(facts)
    assert min(told[f"The capital of {country} is {capital}."] for country, capital in CAPITALS.items()) >= 5
    assert told["The capital of France is Paris."] > 40
    assert told["The capital of Somalia is Mogadishu."] < 20


def test_poems_have_four_lines(clean: list[Conversation]) -> None:
    poems = {answer for said in clean for _, answer in said if "\n" in answer}
    assert len(poems) > 40
    assert {len(poem.splitlines()) for poem in poems} == {4}


# --- how it is mixed --------------------------------------------------------------------------------------------------


def test_nearly_all_conversations_differ(corpus: list[Conversation]) -> None:
    assert 0.95 < len(set(corpus)) / COUNT < 0.995


def test_small_corpora_repeat_only_on_purpose() -> None:
    few = list(conversations(seed=0, count=1000))
    assert 0.97 < len(set(few)) / 1000 < 1


def test_conversations_are_short_and_mostly_one_question(clean: list[Conversation]) -> None:
    assert max(sum(len(text.split()) for exchange in said for text in exchange) for said in clean) < 100
    turns = Counter(map(len, clean))
    assert set(turns) == {1, 2, 3}
    assert turns[1] > len(clean) / 2 > turns[2] > turns[3]


def test_blemishes_are_of_every_kind_and_rare(corpus: list[Conversation]) -> None:
    blemished = [said for said in corpus if not said or has_blemish(said)]
    assert 0.003 < len(blemished) / COUNT < 0.01
    assert () in blemished
    asked = [said[0].question for said in blemished if said]
    for mark in ("  ", "🙂", "“", "\r\n", "\t", "\u200b"):
        assert any(mark in question for question in asked), repr(mark)


def test_answers_have_no_blemish(corpus: list[Conversation]) -> None:
    answers = "".join(answer for conversation in corpus for _, answer in conversation)
    assert not any(mark in answers for mark in ("  ", "🙂", "“", "\r", "\t", "\u200b"))


# --- how it is drawn --------------------------------------------------------------------------------------------------


def test_first_is_five_times_as_likely_as_last() -> None:
    assert falling(4) == (15, 8, 4, 3)
    assert all(falling(size)[0] == 5 * falling(size)[-1] for size in range(2, 200))


def test_shapes_are_in_per_cent() -> None:
    assert sum(ConversationSource(Draw(0)).shapes.values()) == 100
