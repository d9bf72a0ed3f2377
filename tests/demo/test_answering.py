"""Answers while they grow, as escaped HTML; and errors for every wrong field."""

import re
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.demo.demo_project import RECITED
from tests.demo.served import SAMPLING, values, words
from tests.demo.wanted import wanted
from tokenmill.demo.answering import (
    MOST_CHARACTERS,
    MOST_TOKENS,
    MOST_TURNS,
    NONE,
    QUESTION,
    TEXT,
    Answering,
    Turn,
)
from tokenmill.demo.models import THIS_RUN, Loaded, Models
from tokenmill.evaluation.generate import Sampling
from tokenmill.runs.find import find_model
from tokenmill.runs.writer import Writer
from tokenmill.words.units import visible


@pytest.fixture
def answering(project: Path) -> Answering:
    beside = project.parent
    return Answering(
        Models(project, [beside / name for name in ("reciter", "endless", "damaged")]),
        Loaded(room=2),
    )


def states(
    answering: Answering,
    name: str | None,
    prompt: str = "hello",
    *,
    kind: str = QUESTION,
    **changes: Any,
) -> list[str]:
    epoch = changes.pop("epoch", None)
    turns = changes.pop("turns", None)
    return [
        state for state, _ in answering.answer(name, epoch, prompt, kind, turns, *values(changes))
    ]


@pytest.mark.parametrize("epoch", [1, "2", 2.0, None])
def test_answer_is_what_the_model_writes(answering: Answering, project: Path, epoch: Any):
    changes = {"max_new_tokens": 200, "temperature": 1.2, "seed": 5}
    grown = states(answering, THIS_RUN, epoch=epoch, **changes)
    text = wanted(project, "hello", changes=changes, epoch=int(epoch or 2))
    assert words(grown[-1]) == visible(text)
    texts = list(dict.fromkeys(map(words, grown)))
    assert len(texts) >= 2
    assert all(after.startswith(before) for before, after in pairwise(texts))
    assert "tokens/s" in grown[-1]


def test_a_page_that_knows_no_model_yet_asks_the_first(answering: Answering):
    assert words(states(answering, None)[-1]) == words(states(answering, THIS_RUN)[-1])


def test_continued_text_is_escaped(answering: Answering, project: Path):
    last = states(answering, f"folder {project.parent / 'reciter'}", "", kind=TEXT)[-1]
    assert words(last) == visible(RECITED)
    assert not re.search("<(?!/?(p|div)[ >])", last)


def test_questions_continue_the_conversation(answering: Answering, project: Path):
    turns: list[Turn] = []
    for question in ("hello", "and then?"):
        *_, (shown, turns) = answering.answer(THIS_RUN, 2, question, QUESTION, turns, *values({}))
    assert [turn.prompt for turn in turns] == ["hello", "and then?"]
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": turns[0].text},
    ]
    messages.append({"role": "user", "content": "and then?"})
    sampling = Sampling(**SAMPLING)
    again = Writer.load(find_model(project, epoch=2)).reply(messages, sampling)
    assert turns[1].text == "".join(again) != turns[0].text
    assert shown.count('class="turn"') == 2


def test_conversation_is_bounded(answering: Answering):
    turns = [Turn(f"question {number}", QUESTION) for number in range(30)]
    last = states(answering, THIS_RUN, turns=turns)[-1]
    assert last.count('class="turn"') == MOST_TURNS
    assert "question 29" in last
    assert "question 5<" not in last


def test_long_prompt_is_refused_and_not_kept(answering: Answering):
    *_, (last, turns) = answering.answer(THIS_RUN, 2, "x" * 20_000, QUESTION, [], *values({}))
    assert "20,000 characters" in last
    assert len(turns[0].prompt) == MOST_CHARACTERS


def test_long_answer_ends_in_time(
    answering: Answering, project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tokenmill.demo.answering.MOST_SECONDS", -1.0)
    last = states(
        answering, f"folder {project.parent / 'endless'}", "", kind=TEXT, max_new_tokens=1024
    )[-1]
    assert len(words(last)) < 1024
    assert "Stopped after" in last


def test_empty_question_asks_nothing(answering: Answering):
    assert states(answering, THIS_RUN, " \n") == [""]


def test_column_without_a_model_stays_empty(answering: Answering):
    assert states(answering, NONE) == [""]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seed": None}, "seed (None) must be a valid integer"),
        ({"seed": -1}, "seed (-1) must be between 0 and"),
        ({"seed": 0.5}, "seed (0.5) must be a valid integer"),
        ({"temperature": "hot"}, "temperature ('hot') must be a valid number"),
        ({"temperature": float("inf")}, "temperature (inf) must be 0"),
        ({"temperature": [1]}, "temperature ([1]) must be a valid number"),
        ({"temperature": -1}, "temperature (-1.0) must be 0"),
        ({"top_p": 0}, "top_p (0.0) must be above 0"),
        ({"max_new_tokens": MOST_TOKENS + 1}, f"must be at most {MOST_TOKENS}"),
        ({"epoch": 3}, "there is no epoch 3 in the workspace"),
        ({"epoch": "last"}, "the epoch ('last') must be a valid integer"),
    ],
)
def test_wrong_field_is_named(answering: Answering, changes: dict[str, Any], sentence: str):
    last = states(answering, THIS_RUN, **changes)[-1]
    assert sentence in unescape(last)
    assert '<p class="refusal" role="alert">' in last
    assert 'class="words"' not in last


def test_unreadable_model_is_an_error_in_the_answer(answering: Answering, project: Path):
    assert (
        "model.safetensors is damaged"
        in states(answering, f"folder {project.parent / 'damaged'}")[-1]
    )
    assert "there is no model 'a <b>name</b>'" in unescape(states(answering, "a <b>name</b>")[-1])
    assert "<b>" not in states(answering, "a <b>name</b>")[-1]


def test_unknown_characters_are_named(answering: Answering):
    assert "does not know '漢'; left out." in unescape(states(answering, THIS_RUN, "漢?")[-1])


def test_first_model_is_loaded_before_the_first_prompt(
    answering: Answering, project: Path, monkeypatch: pytest.MonkeyPatch
):
    text = wanted(project, "hello", epoch=2)
    answering.prepare()
    monkeypatch.setattr(Writer, "load", lambda _: pytest.fail("it was read again"))
    assert words(states(answering, THIS_RUN, epoch=2)[-1]) == visible(text)


def test_error_of_the_first_model_comes_with_its_answer(project: Path, tmp_path: Path):
    damaged = Answering(Models(tmp_path, [project.parent / "damaged"]), Loaded(room=2))
    damaged.prepare()
    assert "is damaged" in states(damaged, f"folder {project.parent / 'damaged'}")[-1]
