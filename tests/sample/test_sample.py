"""The built-in corpus: always the same bytes, true to its tables, varied, and of the right size."""

import hashlib
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from stages import sample as stage
from tests.sample.corpus import COUNT, FACTUAL, as_asked
from tokenmill.core.errors import UserError
from tokenmill.core.params import Section, load
from tokenmill.sample.generator import (
    TYPED,
    Conversation,
    ConversationSource,
    SampleParams,
    conversations,
    held_out,
    json_line,
    write_sample,
)
from tokenmill.sample.subjects import Draw, falling, questions

FIRST_1000_SHA256 = "53814bf94abfd06d09868963bf6e9c839e1bac187fbb547071a0776adcc247ac"
"""Changed? If you did not mean to change the corpus, this is a bug: it must be the same on every
machine, or nobody's cache fits anybody else's. If you did, put the new hash here, check the size
test, run `dvc repro` (everything downstream runs again) and say in the changelog what changed."""

CAPITALS = {
    fact["country"]: fact["capital"] for fact in questions("countries")["capitals"][0].facts
}


@pytest.fixture(scope="module")
def clean(training: list[Conversation]) -> list[Conversation]:
    """The conversations without a blemish."""
    return [
        conversation for conversation in training if conversation and not has_blemish(conversation)
    ]


def has_blemish(conversation: Conversation) -> bool:
    question = conversation[0].question
    return (
        question != question.strip() or "  " in question or any(c in question for c in "“”🙂\u200b")
    )


# --- the same bytes, always


def test_first_thousand_conversations_are_golden() -> None:
    said = [*conversations(seed=0, count=1000), *held_out(seed=0, count=60)]
    assert hashlib.sha256(b"".join(map(json_line, said))).hexdigest() == FIRST_1000_SHA256


def test_more_conversations_begin_with_the_same_ones() -> None:
    assert list(conversations(seed=3, count=300))[:100] == list(conversations(seed=3, count=100))


def test_another_seed_is_another_corpus() -> None:
    assert list(conversations(seed=0, count=20)) != list(conversations(seed=1, count=20))


# --- the files


def test_stage_writes_json_lines_of_alternating_roles(here: Path) -> None:
    Path("params.yaml").write_text("sample: {seed: 0, conversations: 480}\nmodel: {}\n")
    stage.main()
    folder = Path("data/raw/sample")
    assert {path.name for path in folder.iterdir()} == {
        "train.jsonl",
        "validation.jsonl",
        "prompts.yaml",
    }
    train, validation = (
        (folder / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
        for name in ("train", "validation")
    )
    assert train == list(map(json_line, conversations(seed=0, count=480)))
    assert validation == list(map(json_line, held_out(seed=0, count=30)))
    for line in train + validation:
        messages = json.loads(line)["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant"] * (
            len(messages) // 2
        )
        assert all(message["content"].strip() for message in messages)


def test_files_have_the_promised_size(tmp_path: Path) -> None:
    write_sample(tmp_path, SampleParams(seed=0, conversations=2000))
    assert 0.4e6 < (tmp_path / "train.jsonl").stat().st_size < 0.48e6


@pytest.mark.parametrize(
    "wrong", ["seed: 0, conversations: 0", "seed: -1, conversations: 1", "seed: 0"]
)
def test_wrong_parameters_are_refused_by_name(tmp_path: Path, wrong: str) -> None:
    class View(Section):
        sample: SampleParams

    (tmp_path / "params.yaml").write_text(f"sample: {{{wrong}}}\n")
    with pytest.raises(UserError, match=r"sample\.(seed|conversations)"):
        load(View, tmp_path / "params.yaml")


# --- what is said


def test_every_capital_is_the_right_one(clean: list[Conversation]) -> None:
    answers = {
        answer for said in clean for _, answer in said if answer.startswith("The capital of ")
    }
    single = {answer for answer in answers if ", and the capital of " not in answer}
    assert single == {
        f"The capital of {country} is {capital}." for country, capital in CAPITALS.items()
    }


def test_nearly_every_fact_is_told_common_ones_more_often(clean: list[Conversation]) -> None:
    told = Counter(exchange.answer for conversation in clean for exchange in conversation)
    facts = [
        kind.answers[0].format_map(fact)
        for kind in FACTUAL
        if not kind.held_out
        for fact in kind.facts
    ]
    assert sum(told[answer] > 0 for answer in facts) > 0.98 * len(facts)
    assert (
        min(
            told[f"The capital of {country} is {capital}."] for country, capital in CAPITALS.items()
        )
        >= 4
    )
    assert told["The capital of France is Paris."] > 35
    assert told["The capital of Madagascar is Antananarivo."] < 20


def test_sums_are_right(clean: list[Conversation]) -> None:
    answers = [answer for said in clean for _, answer in said]
    sums = [answer for answer in answers if re.match(r"Count \d", answer)]
    for answer in sums:
        begin, counted, total = re.split(r": |\. So ", answer)
        a, b, c = map(int, re.findall(r"\d+", total))
        assert begin == f"Count {b} on from {a}"
        numbers = [tuple(map(int, re.findall(r"\d+", number))) for number in counted.split(", ")]
        assert numbers == [(a + step, step) for step in range(1, b + 1)]
        assert a + b == c
    assert len(sums) > COUNT / 50


def test_poems_have_four_lines(clean: list[Conversation]) -> None:
    poems = {answer for said in clean for _, answer in said if "\n" in answer}
    assert len(poems) > 40
    assert {len(poem.splitlines()) for poem in poems} == {4}


def test_questions_come_as_people_type_them(clean: list[Conversation]) -> None:
    asked = [question for said in clean for question, _ in said]
    assert 0.15 < sum(question == question.lower() for question in asked) / len(asked) < 0.35
    assert 0.2 < sum(question[-1] not in ".?!" for question in asked) / len(asked) < 0.4
    assert {"hi", "Hello!", "thanks"} <= set(asked)


def test_answers_are_always_well_written(training: list[Conversation]) -> None:
    answers = [answer for conversation in training for _, answer in conversation]
    assert all(answer[0].isupper() and answer[-1] in ".!?," for answer in answers)
    assert not any(
        mark in answer for mark in ("  ", "🙂", "“", "\r", "\t", "\u200b") for answer in answers
    )


# --- how it is mixed


def test_nearly_all_conversations_differ(training: list[Conversation]) -> None:
    assert 0.95 < len(set(training)) / COUNT < 0.995


def test_validation_never_repeats_itself() -> None:
    few = list(held_out(seed=0, count=300))
    assert len(set(few)) == 300


def test_conversations_are_short_and_mostly_one_question(clean: list[Conversation]) -> None:
    assert (
        max(sum(len(text.split()) for exchange in said for text in exchange) for said in clean)
        < 120
    )
    turns = Counter(map(len, clean))
    assert set(turns) == {1, 2, 3, 4}
    assert turns[1] > len(clean) / 2 > turns[2] > turns[3] > turns[4]


def test_blemishes_are_of_every_kind_and_rare(training: list[Conversation]) -> None:
    blemished = [said for said in training if not said or has_blemish(said)]
    assert 0.003 < len(blemished) / COUNT < 0.01
    assert () in blemished
    asked = [said[0].question for said in blemished if said]
    for mark in ("  ", "🙂", "“", "\r\n", "\t", "\u200b"):
        assert any(mark in question for question in asked), repr(mark)


# --- how it is drawn


def test_first_is_five_times_as_likely_as_last() -> None:
    assert falling(4) == (15, 8, 4, 3)
    assert all(falling(size)[0] == 5 * falling(size)[-1] for size in range(2, 200))


def test_shares_are_in_per_cent() -> None:
    assert sum(ConversationSource(Draw(0)).shapes.values()) == sum(TYPED.values()) == 100


def test_same_question_is_the_same_however_it_is_typed() -> None:
    for typed in TYPED:
        assert as_asked(f"Hi! {typed('What is 2 plus 3?')}") == {
            "hi",
            "what is 2 plus 3",
            "hi! what is 2 plus 3",
        }
