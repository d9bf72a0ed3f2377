import sys

import pytest

from tests.terminal import Terminal
from tokenmill import progress
from tokenmill.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_nothing_for_short_work(clock, capsys):
    with Progress("clean", 10) as bar:
        clock[0] += 1.9
        bar.advance(10)
    assert capsys.readouterr().err == ""


def test_a_line_every_ten_seconds_in_a_log(clock, capsys):
    with Progress("clean", 4_000_000) as bar:
        for _ in range(40):
            clock[0] += 1
            bar.advance(100_000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "clean: 1 MB of 4 MB (25%), 100 kB/s, 10 s, 30 s left"
    assert len(lines) == 4
    assert lines[-1] == "clean: 4 MB of 4 MB (100%), 100 kB/s, 40 s"


@pytest.mark.parametrize(
    ("total", "state"), [(1, "1 of 1 epoch (100%)"), (4, "1 of 4 epochs (25%)")]
)
def test_things_are_counted_without_a_rate(clock, capsys, total, state):
    with Progress("evaluate", total, "epoch") as bar:
        clock[0] += 3
        bar.advance(1)
    assert f"evaluate: {state}, 3 s" in capsys.readouterr().err


def test_less_than_expected_is_all_there_was(clock, capsys):
    with Progress("tokenizer", 100) as bar:
        clock[0] += 10
        bar.advance(85)
        bar.end()
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("tokenizer: 85 B of 85 B (100%)")


def test_a_note_where_the_work_is_long(clock, capsys):
    with Progress("tokenizer", 10) as bar:
        bar.note("merging")
        clock[0] += 3
        assert capsys.readouterr().err == ""
        bar.note("merging")
        assert capsys.readouterr().err == "merging\n"


def test_lines_on_a_terminal_that_draws_nothing(monkeypatch, clock):
    screen = Terminal()
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stderr", screen)
    with Progress("clean", 100) as bar:
        clock[0] += 11
        bar.advance(50)
        bar.advance(50)
    assert screen.getvalue().count("clean: ") == 2
    assert "\x1b" not in screen.getvalue()


def test_a_bar_on_a_terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "QUIET", 0.0)
    with Progress("clean", 100) as bar:
        bar.advance(100)
    assert "100 B of 100 B (100%)" in screen.getvalue()
