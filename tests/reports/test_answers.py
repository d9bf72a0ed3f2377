"""Changed words between answers, and how a page marks them."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.evaluation.results import Answer, Question
from tokenmill.reports.answers import Span, Version, compare_answers, word_changes
from tokenmill.reports.page import environment

TEXTS = st.lists(
    st.sampled_from(["a", "b", "cat", " ", "\n", ".", "é", "🙂", "\x00", "<b>"]), max_size=20
).map("".join)


def shown(before: str, after: str) -> str:
    signs = {"same": "{}", "added": "+{}+", "removed": "-{}-"}
    return "".join(signs[span.kind].format(span.text) for span in word_changes(before, after))


def test_words_are_compared_not_letters():
    assert shown("The capital of Spain is Madrid.", "The capital of France is Paris.") == (
        "The capital of -Spain -+France +is -Madrid-+Paris+."
    )
    assert shown("2 plus 3 is 3", "2 plus 3 is 5.") == "2 plus 3 is -3-+5.+"
    assert shown("one two", "one") == "one- two-"
    assert shown("می\u200cروم a", "می\u200cآیم a") == "-می\u200cروم -+می\u200cآیم +a"


def test_white_space_is_not_a_change():
    assert shown("a cup\nof tea", "a  cup of tea\n") == "a  cup of tea\n"


def test_unlike_texts_are_not_compared():
    assert (
        shown("Moon is a huge deer.", "We learn by examples, not rules!")
        == "We learn by examples, not rules!"
    )
    assert shown("", "new") == "new"
    assert shown("old", "") == ""


@given(TEXTS, TEXTS)
def test_spans_hold_both_texts(before: str, after: str):
    spans = word_changes(before, after)
    assert "".join(span.text for span in spans if span.kind != "removed") == after
    if any(span.kind != "same" for span in spans):
        old = "".join(span.text for span in spans if span.kind != "added")
        assert old.split() == before.split() or "".join(old.split()) == "".join(before.split())


@given(TEXTS)
def test_equal_texts_have_no_changes(text: str):
    assert {span.kind for span in word_changes(text, text)} <= {"same"}


def marked(before: str, after: str) -> str:
    template = '{% import "answers.html" as answers %}[{{ answers.marked(spans) }}]'
    return environment().from_string(template).render(spans=word_changes(before, after))


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("a red cat", "a blue cat", "[a <del>red</del> <ins>blue</ins> cat]"),
        ("one two", "one", "[one <del>two</del> ]"),
        ("one", "one two", "[one <ins>two</ins>]"),
        ("a b c", "a c", "[a <del>b</del> c]"),
        ("a b", "a b  ", "[a b  ]"),
        ("is it <b>", "is it <i>", "[is it &lt;<del>b</del> <ins>i</ins>&gt;]"),
    ],
)
def test_page_marks_changed_words(before: str, after: str, shown: str):
    assert marked(before, after) == shown


def test_drawn_text_comes_first_where_a_text_goes_on():
    def first(kind: Literal["user", "text"], expect: str | None) -> Version:
        question = Question(prompt="?", expect=expect, left_out="", kind=kind)
        answer = Answer(greedy="on and on", sampled="drawn", found=None, repetition=0.9)
        return compare_answers(question, [("a", answer)]).versions[0]

    drawn = first("text", None)
    assert (drawn.spans, drawn.other, drawn.loops) == ([Span("same", "drawn")], "on and on", False)
    for version in (first("user", None), first("text", "on")):
        assert (version.spans[0].text, version.other, version.loops) == ("on and on", "drawn", True)


def test_answers_are_compared_with_the_last_one_asked():
    def answer(text: str, *, found: bool | None = None, repetition: float = 0.0) -> Answer:
        return Answer(greedy=text, sampled="", found=found, repetition=repetition)

    question = Question(prompt="?", expect="cat", left_out="")
    answers = [
        ("a", answer("a red cat", found=True)),
        ("b", None),
        ("c", answer("a red cat", repetition=0.5)),
    ]
    first, absent, last = compare_answers(question, answers).versions
    assert (first.mark, absent.mark, last.mark) == ("right", "", "")
    assert (first.is_unchanged, absent.is_unchanged, last.is_unchanged) == (False, False, True)
    assert last.spans == [Span("same", "a red cat")]
    assert (first.loops, absent.loops, last.loops) == (False, False, True)
