"""Numbers with units, and text in which nothing is invisible."""

import doctest
import shlex
import unicodedata

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.words import units
from tokenmill.words.units import (
    INVISIBLE,
    JOINERS,
    duration,
    message,
    override,
    si,
    size,
    visible,
    visible_stream,
)


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(units).failed == 0


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1 kB"),
        (1e4, "10 kB"),
        (1.08e9, "1.08 GB"),
        (2e16, "20000 TB"),
    ],
)
def test_size_has_three_digits_and_a_decimal_prefix(count: float, shown: str) -> None:
    assert size(count) == shown


@given(st.floats(1, 1e15))
def test_si_keeps_the_value_to_three_digits(value: float) -> None:
    shown = si(value, space="")
    power = "kMGT".find(shown[-1]) + 1
    assert float(shown.rstrip("kMGT")) * 1000**power == pytest.approx(value, rel=6e-3)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 s"),
        (0.4, "0.4 s"),
        (99, "99 s"),
        (100, "1.7 min"),
        (149, "2.5 min"),
        (720, "12 min"),
        (5969, "99 min"),
        (6000, "1.7 h"),
        (4e9, "127 years"),
    ],
)
def test_duration_takes_the_unit_that_suits(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@given(st.text())
def test_visible_leaves_nothing_invisible_but_blanks(text: str) -> None:
    shown = visible(text)
    assert all(
        char in {" ", "\t", "\n", *JOINERS} or unicodedata.category(char) not in INVISIBLE
        for char in shown
    )
    assert visible(shown) == shown


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("می\u200cخواهم", 0),
        ("👩\u200d👧 ❤\ufe0f\u200d🔥", 0),
        ("\u200cمی\u200d", 2),
        ("a\u200cb aی\u200cb", 2),
        ("م\u200c\u200cی", 2),
        ("é\u200d\u202eé", 2),
        ("é\u200d\xa0é", 1),
    ],
)
def test_joiners_are_seen_only_where_they_join_nothing(text: str, codes: int) -> None:
    assert visible(text).count("⟨U+") == codes


@given(st.lists(st.text(st.sampled_from("aéم👧\u200c\u200d\x07 "))))
def test_a_text_in_pieces_is_shown_as_the_whole(pieces: list[str]) -> None:
    assert "".join(visible_stream(pieces)) == visible("".join(pieces))


def test_visible_keeps_what_can_be_seen() -> None:
    assert visible("naïve 漢字 🦊\n\tnext\xa0line") == "naïve 漢字 🦊\n\tnext\xa0line"
    assert visible("\x1b]0;title\x07\r\u2028\x9b") == "␛]0;title␇␍⟨U+2028⟩⟨U+009B⟩"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/x", "s3://key:•••@bucket/x"),
        ("https:/ada:secret@host/x", "https:/ada:•••@host/x"),  # as a path
        ("https:/secret@host/x", "https:/•••@host/x"),
        ("https://ada:secret/1@host/x", "https://ada:•••@host/x"),
        ("http://host:80/a@b", "http://host:80/a@b"),
        ("cannot reach https://TOKEN@host: 401", "cannot reach https://•••@host: 401"),
        ("mirror: ssh://me:pa%40ss@host:22/a\n", "mirror: ssh://me:•••@host:22/a\n"),
        ("http://me:p@ss@host/x", "http://me:•••@host/x"),
        ("ssh://a@b.org:pass@host/x", "ssh://a@b.org:•••@host/x"),
        ("x?Signature=a%2Fb&v=1#token=c", "x?Signature=•••&v=1#token=•••"),
        ('"x?api_key=a"', '"x?api_key=•••"'),
        ("x?page=2&tokens=", "x?page=2&tokens="),
        ("ssh://me@host, http://host:80/a@b, a: b@c", "ssh://me@host, http://host:80/a@b, a: b@c"),
    ],
)
def test_message_shows_addresses_without_passwords(text: str, shown: str) -> None:
    assert message(text) == shown


@given(
    st.text(
        st.characters(exclude_categories=("C", "Zl", "Zp")) | st.sampled_from("\\\"' $/"),
        min_size=1,
    )
)
def test_hydra_reads_an_override_as_it_was_meant(value: str) -> None:
    option, assignment = shlex.split(override("data.raw", value))
    (read,) = OverridesParser.create().parse_overrides([assignment])
    assert (option, read.key_or_group) == ("-S", "data.raw")
    assert str(read.value()) == value
