"""`tokenmill doctor`: how a finding is printed."""

import io

import pytest

from tests.terminal import Terminal
from tokenmill.cli.doctor import print_finding
from tokenmill.doctor.finding import problem


def shown(out: io.StringIO) -> str:
    print_finding(problem("disk", "full \x1b[2J " + "word " * 30, "make room"), out)
    return out.getvalue()


def test_colour_is_for_terminals(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert shown(Terminal()).count("\033[31m") == 2
    assert "\033" not in shown(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in shown(Terminal())


def test_text_and_remedy_are_indented_under_each_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    first, *more, remedy = shown(Terminal()).splitlines()
    column = first.index("full")
    assert more
    assert all(line.index("word") == column for line in more)
    assert remedy.index("→ make room") == column
    assert all(len(line) <= 80 for line in (first, *more))
