"""Text on a terminal: wrapped, in columns, in colour, and with nothing invisible in it."""

import contextlib
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from tests.terminal import Terminal
from tokenmill.display import (
    console,
    print_blocks,
    print_columns,
    print_stream,
    rate,
    say,
    shortened,
    wrapped,
)

TEXT = st.lists(st.sampled_from([*"ab \n\té漢🦊", "e\u0301"]), max_size=60).map("".join)


@given(TEXT, st.integers(1, 20), st.integers(1, 5))
def test_wrapping_keeps_words_whole_and_in_order(text: str, width: int, size: int):
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    lines = "".join(wrapped(pieces, width))
    assert lines == "".join(wrapped([text], width))
    assert "".join(lines.split()) == "".join(text.split())
    found = iter(lines.split())
    assert all(word in found for word in text.split() if cell_len(word) <= width)
    for line in lines.split("\n"):
        assert cell_len(line.lstrip()) <= max(width, 2)


@given(TEXT)
def test_text_that_fits_only_loses_blanks_at_line_ends(text: str):
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
def test_a_line_ends_before_a_word_that_does_not_fit(text: str, expected: str):
    assert "".join(wrapped([text], 8)) == expected


def test_a_word_comes_as_soon_as_it_is_complete():
    given_out: list[str] = []

    def pieces():
        for piece in ("one ", "tw", "o ", "three"):
            yield piece
            given_out.append(piece)

    words = wrapped(pieces(), 80)
    assert next(words) == "one"
    assert next(words) == " two"
    assert given_out == ["one ", "tw"]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Something like a terminal of 80 columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


@given(st.text("ab 。字\n", max_size=40), st.integers(4, 20))
def test_one_line_shows_the_beginning_of_any_script(text: str, width: int):
    line = shortened(text, width)
    beginning = line.removesuffix(" …")
    assert cell_len(line) <= width
    assert " ".join(text.split()).startswith(beginning)
    assert line == beginning or 2 * cell_len(beginning) >= width - 4


def test_one_token_is_no_tokens():
    assert rate(1, 0.5).startswith("1 token in 0.50 s")
    assert rate(0, 0.0) == "0 tokens"


def test_columns_are_aligned_and_lines_end_without_blanks():
    out = io.StringIO()
    print_columns([("a", "1", "left"), ("long", "1000", "")], right=(1,), out=out)
    assert out.getvalue() == "a        1  left\nlong  1000\n"


def test_only_a_terminal_breaks_lines(terminal: Terminal):
    row = ("name", "word " * 60)
    print_columns([row], out=terminal)
    lines = terminal.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert all(line.startswith("      word") for line in lines[1:])
    out = io.StringIO()
    print_columns([row], out=out)
    assert out.getvalue().count("\n") == 1


FIGURES = [("epoch", "loss", "tokens/s"), ("1", "12.3456", "682,667"), ("2", "9" * 50, "7kB")]


@pytest.mark.parametrize("width", [10, 25, 80])
@pytest.mark.parametrize("order", [1, -1])
def test_figures_are_whole_at_any_width(
    terminal: Terminal, width: int, order: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", str(width))
    print_columns([row[::order] for row in FIGURES], right=range(3), out=terminal)
    tables = [table.splitlines() for table in terminal.getvalue().split("\n\n")]
    shown = [set(" ".join(row).split()) for row in zip(*tables, strict=True)]
    assert shown == [set(row) for row in FIGURES]


@pytest.mark.parametrize(("width", "is_beside"), [(31, True), (30, False)])
def test_text_with_little_room_stands_below(
    terminal: Terminal, width: int, is_beside: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", str(width))
    print_columns([("name", "1", "word " * 20), ("", "", "short")], gap=1, out=terminal)
    first, *others = terminal.getvalue().splitlines()
    assert ("word" in first) is is_beside
    assert {len(line) - len(line.lstrip()) for line in others} == {7 if is_beside else 4}


def test_control_characters_of_foreign_text_are_made_visible(terminal: Terminal):
    hostile = "\x1b]0;title\x07\u202e\x9b2J"
    print_columns([(hostile, hostile)], out=terminal)
    with contextlib.redirect_stdout(terminal):
        print_stream([hostile])
    shown = terminal.getvalue()
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown)
    assert shown.count("␛]0;title␇") == 3


def test_a_joiner_between_pieces_is_spelling(terminal: Terminal):
    with contextlib.redirect_stdout(terminal):
        print_stream(["می", "\u200c", "خواهم", "\u200c"])
    assert terminal.getvalue() == "می\u200cخواهم⟨U+200C⟩\n"


def test_a_pipe_gets_the_text_as_it_is(capsys: pytest.CaptureFixture[str]):
    print_stream(["a\x1b", "[0m " + "b" * 200])
    assert capsys.readouterr().out == "a\x1b[0m " + "b" * 200 + "\n"


def test_brackets_and_numbers_are_only_text(terminal: Terminal):
    console(terminal).print("[red]12[/red] :smile:")
    assert terminal.getvalue() == "[red]12[/red] :smile:\n"


def test_every_way_to_print_passes_through_the_mask(terminal: Terminal):
    hostile = "\x1b]0;title\x07\u202e s3://key:SECRET@bucket"
    table = Table("\x1b[2J")
    table.add_row(Text(hostile, "green"))
    print_blocks([table, hostile, Text(hostile)], console(terminal, width=100))
    print_columns([(hostile, Text(hostile, "red"))], out=terminal)
    say(hostile, out=terminal)
    shown = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())  # without rich's own colours
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert shown.count("␛]0;title") == 6
    assert "SECRET" not in shown
