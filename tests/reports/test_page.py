"""Numbers, tokens and foreign text as a page shows them."""

import html
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.reports.page import (
    WHITE_SPACE,
    commands,
    decimal,
    environment,
    excerpt_markup,
    percent,
    signed,
    significant,
    time,
    token_markup,
    token_text,
)
from tokenmill.words.units import INVISIBLE, JOINERS, counted


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (counted(1, "document"), "1 document"),
        (counted(1234567, "document"), "1,234,567 documents"),
        (decimal(1234.5), "1,234.50"),
        (percent(0.0), "0 %"),
        (percent(0.0001), "< 0.1 %"),
        (percent(0.5), "50.0 %"),
        (percent(0.9999), "> 99.9 %"),
        (percent(1.0), "100 %"),
        (signed(0.5), "+0.50"),
        (signed(-1234.5, 1), "−1,234.5"),
        (signed(-0.001), "0.00"),
        (significant(0.0043), "0.00430"),
        (significant(0.0000012345), "0.00000123"),
        (significant(12.345), "12.3"),
        (significant(123456), "123,000"),
        (time(0.026), "0.026 s"),
        (time(359), "6 min"),
    ],
)
def test_numbers_are_short_and_honest(shown: str, expected: str) -> None:
    assert shown.replace("\u202f", " ") == expected


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (b" the", "␣the"),
        (b"\n\t", "↵⇥"),
        ("é".encode(), "é"),
        (b"\xe2\x80", "\\xE2\\x80"),
        (b"\x00\x7f", "␀⟨U+007F⟩"),
        ("\u200b\u202e".encode(), "⟨U+200B⟩⟨U+202E⟩"),
        ("\u200cی\u200cم".encode(), "⟨U+200C⟩ی\u200cم"),
    ],
)
def test_token_is_readable(token: bytes, shown: str) -> None:
    assert token_text(token) == shown


def test_tokens_white_space_is_marked_and_its_text_escaped() -> None:
    assert token_markup(b" <i>\n") == "<i>␣</i>&lt;i&gt;<i>↵</i>"


def test_commands_of_a_sentence_are_code_and_the_rest_is_escaped() -> None:
    assert commands("<b> `dvc <x>` \x07") == "&lt;b&gt; <code>dvc &lt;x&gt;</code> ␇"


def test_the_dots_of_an_excerpt_stay_with_its_end() -> None:
    assert excerpt_markup("<long text>", 7) == '&lt;lon<span class="whole">g t …</span>'
    assert excerpt_markup("<b>", 3) == "&lt;b&gt;"


@given(st.text(max_size=50))
def test_page_hides_nothing(text: str) -> None:
    shown = html.unescape(environment().from_string("{{ text | excerpt(30) }}").render(text=text))
    assert all(
        char in {*WHITE_SPACE, *JOINERS} or unicodedata.category(char) not in INVISIBLE
        for char in shown
    )
    shown.encode()  # no lone surrogate
    if len(text) <= 30 and not any(unicodedata.category(char) in INVISIBLE for char in text):
        assert shown == text
