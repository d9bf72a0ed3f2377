"""Answers while they grow, as escaped HTML; and errors for every wrong field."""

import re
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.demo.demo_project import RECITED
from tests.demo.served import SAMPLING
from tests.demo.wanted import wanted
from tokenmill.demo.answering import MOST_TOKENS, NONE, QUESTION, TEXT, Answering
from tokenmill.demo.models import THIS_RUN, Loaded, Models
from tokenmill.models.writer import Writer
from tokenmill.reports.page import excerpt


@pytest.fixture
def answering(project: Path) -> Answering:
    beside = project.parent
    return Answering(Models(project, [beside / "reciter", beside / "damaged"]), Loaded(room=2))


def states(
    answering: Answering, name: str, prompt: str = "hello", *, kind: str = QUESTION, **changes: Any
) -> list[str]:
    epoch = changes.pop("epoch", None)
    return list(answering.answer(name, epoch, prompt, kind, *(SAMPLING | changes).values()))


def words(state: str) -> str:
    found = re.search(r'<div class="words" dir="auto">(.*?)</div>', state, re.DOTALL)
    return unescape(found[1]) if found else ""


@pytest.mark.parametrize("epoch", [1, "2", 2.0, None])
def test_answer_is_what_the_model_writes(answering: Answering, project: Path, epoch: Any):
    changes = {"max_new_tokens": 200, "temperature": 1.2, "seed": 5}
    grown = states(answering, THIS_RUN, epoch=epoch, **changes)
    text = wanted(project, "hello", changes=changes, epoch=int(epoch or 2))
    assert words(grown[-1]) == excerpt(text, len(text))
    texts = list(dict.fromkeys(map(words, grown)))
    assert len(texts) >= 2
    assert all(after.startswith(before) for before, after in pairwise(texts))
    assert "tokens/s" in grown[-1]


def test_continued_text_is_escaped(answering: Answering, project: Path):
    last = states(answering, f"folder {project.parent / 'reciter'}", "", kind=TEXT)[-1]
    assert words(last) == excerpt(RECITED, len(RECITED))
    assert not re.search("<(?!/?(p|div)[ >])", last)


def test_column_without_a_model_stays_empty(answering: Answering):
    assert states(answering, NONE) == [""]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seed": None}, "the seed is empty; it must be a number."),
        ({"seed": -1}, "seed (-1) must be between 0 and"),
        ({"seed": 0.5}, "the seed is 0.5; it must be a whole number."),
        ({"temperature": "hot"}, "the temperature is 'hot'; it must be a number."),
        ({"temperature": float("inf")}, "the temperature is inf; it must be a number."),
        ({"temperature": [1]}, "the temperature is [1]; it must be a number."),
        ({"temperature": -1}, "temperature (-1.0) must be 0"),
        ({"top_p": 0}, "top_p (0.0) must be above 0"),
        ({"max_new_tokens": MOST_TOKENS + 1}, f"must be at most {MOST_TOKENS} tokens"),
        ({"epoch": 3}, "there is no epoch 3 in the workspace"),
        ({"epoch": "last"}, "the epoch is 'last'; it must be a number."),
    ],
)
def test_wrong_field_is_named(answering: Answering, changes: dict[str, Any], sentence: str):
    last = states(answering, THIS_RUN, **changes)[-1]
    assert sentence in unescape(last)
    assert last.startswith('<p class="refusal" role="alert">')


def test_unreadable_model_is_an_error_in_the_answer(answering: Answering, project: Path):
    assert "model.safetensors is damaged" in states(answering, f"folder {project.parent / 'damaged'}")[-1]
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
    assert words(states(answering, THIS_RUN, epoch=2)[-1]) == excerpt(text, len(text))


def test_error_of_the_first_model_comes_with_its_answer(project: Path, tmp_path: Path):
    damaged = Answering(Models(tmp_path, [project.parent / "damaged"]), Loaded(room=2))
    damaged.prepare()
    assert "is damaged" in states(damaged, f"folder {project.parent / 'damaged'}")[-1]
