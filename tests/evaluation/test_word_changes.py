"""Words that are new, words that are gone."""

from hypothesis import given
from hypothesis import strategies as st

from tokenmill.reports.answers import changes

TEXTS = st.lists(st.sampled_from(["a", "b", "cat", " ", "\n", ".", "é", "🙂", "\x00", "<b>"]), max_size=20).map("".join)


def shown(before: str, after: str) -> str:
    signs = {"same": "{}", "new": "+{}+", "gone": "-{}-"}
    return "".join(signs[span.kind].format(span.text) for span in changes(before, after))


def test_words_are_compared_and_not_letters():
    assert shown("The capital of Spain is Madrid.", "The capital of France is Paris.") == (
        "The capital of -Spain -+France +is -Madrid-+Paris+."
    )
    assert shown("2 plus 3 is 3", "2 plus 3 is 5.") == "2 plus 3 is -3-+5.+"
    assert shown("one two", "one") == "one- two-"


def test_white_space_is_not_a_change():
    assert shown("a cup\nof tea", "a  cup of tea\n") == "a  cup of tea\n"


def test_another_text_is_not_taken_apart():
    assert shown("Moon is a huge deer.", "We learn by examples, not rules!") == "We learn by examples, not rules!"
    assert shown("", "new") == "new"
    assert shown("old", "") == ""


@given(TEXTS, TEXTS)
def test_the_new_text_is_whole_and_the_old_one_can_be_read(before: str, after: str):
    spans = changes(before, after)
    assert "".join(span.text for span in spans if span.kind != "gone") == after
    if any(span.kind != "same" for span in spans):
        old = "".join(span.text for span in spans if span.kind != "new")
        assert old.split() == before.split() or "".join(old.split()) == "".join(before.split())


@given(TEXTS)
def test_nothing_changes_between_equals(text: str):
    assert {span.kind for span in changes(text, text)} <= {"same"}
