"""The built-in corpus: always the same bytes, true to itself, varied, and of the right size."""

import hashlib
import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from stages import sample as stage
from tokenmill.errors import UserError
from tokenmill.params import Section, load
from tokenmill.sample import draw, geography, smalltalk
from tokenmill.sample.conversation import FACTUAL, FAMILIES, SHAPES, Conversation
from tokenmill.sample.family import Exchange, Fact, Family, bare, fact
from tokenmill.sample.generator import conversations, json_line, write_sample
from tokenmill.sample.params import SampleParams

COUNT = 11_000
"""What params.yaml says in the repository."""

FIRST_1000_SHA256 = "d930dac0a9803997b41399d0f1e5cc571a02f5a32f714cc3193523f8554d1fe4"
"""Changed? If you did not mean to change the corpus, this is a bug: it must be the same on every machine, or
nobody's cache fits anybody else's. If you did, put the new hash here, check the size test, run `dvc repro`
(everything downstream runs again) and say in the changelog what changed."""

FRANCE = Exchange("What is the capital of France?", "The capital of France is Paris.")


@pytest.fixture(scope="module")
def corpus() -> list[Conversation]:
    return list(conversations(seed=0, count=COUNT))


@pytest.fixture(scope="module")
def clean(corpus: list[Conversation]) -> list[Conversation]:
    """The conversations that nothing was done to."""
    return [conversation for conversation in corpus if conversation and not is_spoiled(conversation)]


def is_spoiled(conversation: Conversation) -> bool:
    question = conversation[0].question
    return question != question.strip() or "  " in question or any(c in question for c in "“”🙂\u200b")


def filled(family: Family, known: Fact) -> list[tuple[str, str]]:
    """Every question of a family for a fact that stands on its own, with every answer."""
    answers = [answer.format_map(known) for answer in family.answers]
    return [(question.format_map(known), answer) for question in family.questions for answer in answers]


# --- the same bytes, always -------------------------------------------------------------------------------------------


def test_first_thousand_conversations_are_golden() -> None:
    digest = hashlib.sha256(b"".join(map(json_line, conversations(seed=0, count=1000))))
    assert digest.hexdigest() == FIRST_1000_SHA256


def test_more_conversations_begin_with_the_same_ones() -> None:
    assert list(conversations(seed=3, count=300))[:100] == list(conversations(seed=3, count=100))


def test_another_seed_is_another_corpus() -> None:
    assert list(conversations(seed=0, count=20)) != list(conversations(seed=1, count=20))


# --- the file ---------------------------------------------------------------------------------------------------------


def test_stage_writes_alternating_roles_in_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_question_for_a_fact_has_one_answer() -> None:
    answers: dict[str, set[str]] = defaultdict(set)
    for family in FACTUAL:
        for known in family.facts:
            for question, answer in filled(family, known):
                answers[question].add(answer)
    assert {question: found for question, found in answers.items() if len(found) > 1} == {}


def test_every_question_about_a_capital_gets_the_right_one(clean: list[Conversation]) -> None:
    capitals = {known["country"]: known["capital"] for known in geography.FAMILIES[0].facts}
    assert len(set(capitals.values())) == len(capitals)
    for conversation in clean:
        for _, answer in conversation:
            if answer.startswith("The capital of "):
                country, capital = answer.removeprefix("The capital of ").removesuffix(".").split(" is ")
                assert capitals[country] == capital


def test_nearly_every_fact_is_told_and_common_ones_more_often(clean: list[Conversation]) -> None:
    told = Counter(exchange.answer for conversation in clean for exchange in conversation)
    facts = [family.answers[0].format_map(known) for family in FACTUAL for known in family.facts]
    assert sum(told[answer] > 0 for answer in facts) > 0.98 * len(facts)
    capitals = [f"The capital of {known['country']} is {known['capital']}." for known in geography.FAMILIES[0].facts]
    assert min(told[answer] for answer in capitals) >= 5
    assert told["The capital of France is Paris."] > 40
    assert told["The capital of Somalia is Mogadishu."] < 20


@pytest.mark.parametrize("family", [*FAMILIES, *smalltalk.FAMILIES, smalltalk.OPENING, smalltalk.CLOSING])
def test_every_template_makes_a_sentence(family: Family) -> None:
    followups = [template.format_map(known) for template in family.followups for known in family.facts]
    pairs = [pair for known in family.facts for pair in filled(family, known)]
    for text in [*followups, *(text for pair in pairs for text in pair)]:
        assert text[0].isupper() or text[0].isdigit(), text
        assert text[-1] in ".?!", text
        assert "  " not in text, text
        assert not set("{}") & set(text), text


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


def test_dirt_is_there_in_every_kind_and_rare(corpus: list[Conversation]) -> None:
    spoiled = [said for said in corpus if not said or is_spoiled(said)]
    assert 0.003 < len(spoiled) / COUNT < 0.01
    assert () in spoiled
    questions = [said[0].question for said in spoiled if said]
    for dirt in ("  ", "🙂", "“", "\r\n", "\t", "\u200b"):
        assert any(dirt in question for question in questions), repr(dirt)


def test_dirt_spares_the_answers(corpus: list[Conversation]) -> None:
    answers = "".join(answer for conversation in corpus for _, answer in conversation)
    assert not any(dirt in answers for dirt in ("  ", "🙂", "“", "\r", "\t", "\u200b"))


# --- the numbers and examples that docstrings promise -----------------------------------------------------------------


def test_first_is_five_times_as_likely_as_last() -> None:
    assert draw.falling(4) == (15, 8, 4, 3)
    assert all(draw.falling(size)[0] == 5 * draw.falling(size)[-1] for size in range(2, 200))


def test_shapes_are_in_per_cent() -> None:
    assert sum(share for share, _ in SHAPES) == 100


def test_facts_know_their_capitalised_words() -> None:
    assert fact(thing="a lemon") == {"thing": "a lemon", "Thing": "A lemon"}
    assert bare("an owl") == "owl"
