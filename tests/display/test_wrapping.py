"""Lines on a terminal: none too long that need not be, the same words, whatever pieces they come in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.display.terminal import columns, wrapped

TEXT = st.lists(st.sampled_from([*"ab \n\té漢🦊", "e\u0301"]), max_size=60).map("".join)


@given(TEXT, st.integers(1, 20), st.integers(1, 5))
def test_words_stay_whole_and_in_their_order_within_the_width(text: str, width: int, size: int):
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    lines = "".join(wrapped(pieces, width))
    assert lines == "".join(wrapped([text], width))
    assert "".join(lines.split()) == "".join(text.split())
    found = iter(lines.split())
    assert all(word in found for word in text.split() if columns(word) <= width)
    for line in lines.split("\n"):
        assert columns(line.lstrip()) <= max(width, 2)


@given(TEXT)
def test_what_fits_is_as_it_was_but_for_blanks_that_nobody_sees(text: str):
    assert "".join(wrapped([text], 200)) == "\n".join(line.rstrip() for line in text.split("\n"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two three", "one two\nthree"),
        ("  indented", "  indented"),
        ("a immeasurable b", "a\nimmeasur\nable b"),
        ("漢漢 漢漢", "漢漢\n漢漢"),
        ("a\n\nb c", "a\n\nb c"),
    ],
)
def test_a_line_ends_before_the_word_that_does_not_fit(text: str, expected: str):
    assert "".join(wrapped([text], 8)) == expected


def test_a_word_comes_as_soon_as_it_is_whole():
    given_out: list[str] = []

    def pieces():
        for piece in ("one ", "tw", "o ", "three"):
            yield piece
            given_out.append(piece)

    words = wrapped(pieces(), 80)
    assert next(words) == "one"
    assert next(words) == " two"
    assert given_out == ["one ", "tw"]
