"""What is held out never lands in the training text, with any seed, and the marks of the prompts
are true."""

from pathlib import Path

import pytest
import yaml

from tests.sample.corpus import ALL, COUNT, as_asked, plain
from tokenmill.evaluation.prompts import PromptParams, read_prompts
from tokenmill.sample import generator
from tokenmill.sample.generator import VALIDATION_EVERY, Conversation, conversations, held_out
from tokenmill.sample.subjects import is_held_out, questions

PROMPTS_FILE = Path(generator.__file__).parent / "prompts.yaml"
PROMPTS = read_prompts(PROMPTS_FILE)
VALIDATION = list(held_out(seed=0, count=COUNT // VALIDATION_EVERY))
COMBINING = [kind for kind in ALL if kind.held_out]


@pytest.fixture(scope="module")
def asked(training: list[Conversation]) -> set[str]:
    """Every question of the training text, without capitals and final marks."""
    return set().union(*(as_asked(question) for said in training for question, _ in said))


def withheld() -> set[str]:
    """Every question that is held out: of held-out combinations, and known facts in held-out
    phrasings."""
    combined = {
        phrasing.format_map(fact)
        for kind in COMBINING
        for fact in kind.held_out
        for phrasing in kind.phrasings + kind.followups
    }
    others = {
        text.format_map(fact)
        for kind in ALL
        for fact in kind.facts
        if fact
        for text in kind.phrasings[1:]
    }
    return combined | set(filter(is_held_out, others))


def test_a_script_with_pyyaml_reads_the_same_prompts():
    content = yaml.safe_load(PROMPTS_FILE.read_text(encoding="utf-8"))
    assert [PromptParams(**one) for one in content["prompts"]] == PROMPTS


def test_no_held_out_question_is_in_the_training_text(asked: set[str]) -> None:
    questions = set(map(plain, withheld()))
    assert len(questions) > 5000
    assert not questions & asked


@pytest.mark.parametrize("seed", [1, 2])
def test_no_other_seed_tells_a_held_out_answer(seed: int) -> None:
    said = {answer for one in conversations(seed=seed, count=3000) for _, answer in one}
    assert not {answer for one in VALIDATION for _, answer in one} & said


def test_no_validation_answer_is_in_the_training_text(training: list[Conversation]) -> None:
    text = "\n".join(part for said in training for exchange in said for part in exchange)
    found = [answer for said in VALIDATION for _, answer in said if answer in text]
    assert not found


def test_parts_of_a_held_out_combination_are_known() -> None:
    for subjects in ("countries", "nature", "words", "arithmetic"):
        for kinds in questions(subjects).values():
            for kind in (kind for kind in kinds if kind.held_out):
                known = {word for fact in kind.facts for word in fact.values()}
                parts = [
                    word
                    for fact in kind.held_out
                    for name, word in fact.items()
                    if name.lower() != "counted"
                ]
                assert set(parts) <= known


def test_validation_asks_for_every_kind_of_combination() -> None:
    answers = [answer for said in VALIDATION for _, answer in said]
    for begin in (
        "Count ",
        "Backwards that is ",
        "I do not know. I have never heard of ",
        "The opposite of ",
    ):
        assert sum(answer.startswith(begin) for answer in answers) >= 20, begin


# --- the prompts


def ids(prompt: PromptParams) -> str:
    return prompt.user or ""


def test_half_of_the_prompts_are_seen() -> None:
    assert [prompt.mark for prompt in PROMPTS] == ["seen"] * 10 + ["held_out"] * 10


@pytest.mark.parametrize("prompt", [prompt for prompt in PROMPTS if prompt.mark == "seen"], ids=ids)
def test_seen_prompt_is_in_the_training_text_with_its_answer(
    prompt: PromptParams, training
) -> None:
    answers = [
        answer
        for said in training
        for asked, answer in said
        if plain(asked) == plain(prompt.user or "")
    ]
    assert len(answers) > 1
    assert all((prompt.expect or "") in answer for answer in answers)


@pytest.mark.parametrize(
    "prompt", [prompt for prompt in PROMPTS if prompt.mark == "held_out"], ids=ids
)
def test_held_out_prompt_is_not_in_the_training_text(prompt: PromptParams, asked: set[str]) -> None:
    assert plain(prompt.user or "") not in asked
    assert plain(prompt.user or "") in set(map(plain, withheld()))
