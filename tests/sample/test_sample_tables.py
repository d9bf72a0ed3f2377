"""The tables behind the built-in corpus: complete, unambiguous, and refused by name where they are
wrong."""

from collections import defaultdict
from pathlib import Path

import pytest

from tokenmill.sample import subjects
from tokenmill.sample.subjects import COMPUTED, FILES, TABLES, Fact, Question, Subject, questions

QUESTIONS = [
    kind for name in (*FILES, "small_talk") for kinds in questions(name).values() for kind in kinds
]

TEMPLATES = {"phrasings": ["What colour is {thing}?"], "answers": ["{Thing} is {colour}."]}


def filled(kind: Question, fact: Fact) -> list[tuple[str, str]]:
    """Every question that stands on its own, with every answer."""
    answers = [answer.format_map(fact) for answer in kind.answers]
    return [
        (phrasing.format_map(fact), answer) for phrasing in kind.phrasings for answer in answers
    ]


# --- what is in them
# --------------------------------------------------------------------------------------------------


def test_every_table_is_read() -> None:
    assert {path.stem for path in TABLES.iterdir()} == {*FILES, "small_talk", "courtesies"}


@pytest.mark.parametrize("kind", QUESTIONS, ids=lambda kind: kind.phrasings[0])
def test_every_template_makes_a_sentence(kind: Question) -> None:
    followups = [template.format_map(fact) for template in kind.followups for fact in kind.facts]
    pairs = [pair for fact in kind.facts for pair in filled(kind, fact)]
    for text in [*followups, *(text for pair in pairs for text in pair)]:
        assert text[0].isupper() or text[0].isdigit(), text
        assert text[-1] in ".?!", text
        assert "  " not in text, text
        assert not set("{}") & set(text), text


def test_a_question_for_a_fact_has_one_answer() -> None:
    answers: dict[str, set[str]] = defaultdict(set)
    for kind in QUESTIONS:
        for fact in kind.facts if kind.followups else ():
            for question, answer in filled(kind, fact):
                answers[question].add(answer)
    assert {question: found for question, found in answers.items() if len(found) > 1} == {}


def test_each_capital_belongs_to_one_country() -> None:
    facts = questions("countries")["capitals"][0].facts
    assert (
        len({fact["country"] for fact in facts})
        == len({fact["capital"] for fact in facts})
        == len(facts)
    )


def test_days_and_months_go_round() -> None:
    facts = {fact["name"]: fact for fact in questions("dates")["neighbours"][0].facts}
    assert len(facts) == 7 + 12
    for name, fact in facts.items():
        after = facts[fact["after"]]
        assert (after["before"], after["kind"]) == (name, fact["kind"])


# --- how they become facts
# --------------------------------------------------------------------------------------------


def test_a_field_is_known_with_a_capital_too() -> None:
    subject = {
        "fields": ["thing", "colour"],
        "questions": [TEMPLATES],
        "facts": [["a lemon", "yellow"]],
    }
    [kind] = Subject.model_validate(subject).with_facts()
    assert kind.facts == [
        {"thing": "a lemon", "Thing": "A lemon", "colour": "yellow", "Colour": "Yellow"}
    ]


def test_each_item_of_a_list_makes_a_fact() -> None:
    rows = [{"thing": "grass", "colour": ["green", "brown"]}, {"thing": "snow", "colour": "white"}]
    [kind] = Subject.model_validate({"questions": [TEMPLATES], "facts": rows}).with_facts()
    assert [(fact["thing"], fact["colour"]) for fact in kind.facts] == [
        ("grass", "green"),
        ("grass", "brown"),
        ("snow", "white"),
    ]


def test_computed_facts_are_right() -> None:
    assert COMPUTED["sums"]([1, 2]) == [["1", "2", "2 (1), 3 (2)", "3"], ["1", "1", "2 (1)", "2"]]
    assert COMPUTED["joined"]([["Zan"], ["doria", "via"]]) == [["Zandoria"], ["Zanvia"]]
    assert len(COMPUTED["threes"](["a", "b", "c", "d"])) == 4 * 3 * 2
    assert COMPUTED["successors"](2) == [["1", "2"], ["2", "3"]]
    pairs = [["old", "young"], ["new", "old"]]
    assert COMPUTED["both_ways"](pairs) == [["old", "young"], ["young", "old"], ["new", "old"]]


@pytest.mark.parametrize(
    ("facts", "place"),
    [
        ("[[grass]]", "colours"),
        ("[[snow, white, cold]]", "colours"),
        ("[[the switch, on]]", "colours.facts.0"),
        ("[], color: []", "colours.color"),
    ],
)
def test_a_wrong_table_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: str, place: str
) -> None:
    monkeypatch.setattr(subjects, "TABLES", tmp_path)
    table = f"{{colours: {{fields: [thing, colour], questions: [{TEMPLATES}], facts: {facts}}}}}"
    (tmp_path / "wrong.yaml").write_text(table)
    with pytest.raises(ValueError, match=place) as refused:
        questions("wrong")
    assert any("wrong.yaml" in note for note in refused.value.__notes__)
