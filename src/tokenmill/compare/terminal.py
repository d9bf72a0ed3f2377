"""A comparison on a terminal, no wider than it is; what changed in answers is marked by signs or, on a tty, by ink."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from tokenmill.compare.runs import Comparison, Row
from tokenmill.reports.answers import Kind, SideBySide, Version
from tokenmill.reports.page import visible

SIGNS: dict[Kind, tuple[str, str]] = {"same": ("", ""), "new": ("{+", "+}"), "gone": ("[-", "-]")}
"""As `git diff --word-diff` marks words."""


INKS: dict[Kind, tuple[str, str]] = {
    "same": ("", ""),
    "new": ("\033[1;32m", "\033[0m"),
    "gone": ("\033[9;31m", "\033[0m"),
}
"""Bold green; struck through, red."""


NARROWEST = 40
"""Columns that a terminal has at least."""


LINES = 4
"""Of one answer at most; the page has all of it."""


def render(comparison: Comparison, *, width: int, colours: bool) -> str:
    """The whole comparison, in lines of at most `width` columns where words allow it."""
    width = max(width, NARROWEST)
    blocks = [_table("", comparison.names, comparison.measures, width)]
    if comparison.caution:
        blocks.append(list(_wrapped([(comparison.caution, "")], width, "")))
    if comparison.settings:
        blocks.append(_table("what differs", comparison.names, comparison.settings, width))
    blocks += [_prompt(prompt, width, INKS if colours else SIGNS) for prompt in comparison.prompts]
    return "\n\n".join("\n".join(block) for block in blocks)


def _table(head: str, names: Sequence[str], rows: Sequence[Row], width: int) -> list[str]:
    """Rows of cells at the right; columns that do not fit follow below, under the same names of rows."""
    rows = [(name, [_cut(cell, width // 2) for cell in cells]) for name, cells in [(head, list(names)), *rows]]
    left = max(_columns(name) for name, _ in rows)
    wide = [max(_columns(cells[i]) for _, cells in rows) for i in range(len(names))]
    lines: list[str] = []
    first = 0
    while first < len(names):
        last, used = first + 1, left + 2 + wide[first]
        while last < len(names) and used + 2 + wide[last] <= width:
            used, last = used + 2 + wide[last], last + 1
        lines += [""] if lines else []
        for name, cells in rows:
            shown = [f"  {' ' * (wide[i] - _columns(cells[i]))}{cells[i]}" for i in range(first, last)]
            lines.append(f"{name}{' ' * (left - _columns(name))}{''.join(shown)}")
        first = last
    return lines


def _prompt(one: SideBySide, width: int, marks: dict[Kind, tuple[str, str]]) -> list[str]:
    """A prompt and under it an answer a line, or several lines where it is long."""
    names = [_cut(version.name, width // 3) for version in one.versions]
    wide = max(map(_columns, names))
    lines = list(_wrapped([(one.question.prompt, "")], width, ""))
    for name, version in zip(names, one.versions, strict=True):
        before = f"  {name}{' ' * (wide - _columns(name))}  {version.mark:<5}  "
        said = list(_wrapped(_said(version, marks), width, before))
        lines += [*said[: LINES - 1], f"{said[LINES - 1]} …"] if len(said) > LINES else said
    return lines


def _said(version: Version, marks: dict[Kind, tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """An answer word by word, each as it is counted and with the ink that is not."""
    if version.answer is None:
        yield "(not asked)", ""
    elif version.is_as_before:
        yield "(as before)", ""
    elif not version.answer.greedy:
        yield "(nothing)", ""
    for span in [] if version.answer is None or version.is_as_before else version.spans:
        begin, end = marks[span.kind]
        text = f"{begin}{span.text.strip()}{end}" if marks is SIGNS else span.text.strip()
        lead = span.text[: len(span.text) - len(span.text.lstrip())]
        trail = " " if span.kind == "gone" else span.text[len(span.text.rstrip()) :]
        yield f"{lead}{text}{trail}", begin if marks is INKS else ""


def _wrapped(parts: Iterable[tuple[str, str]], width: int, before: str) -> Iterator[str]:
    """Texts with their inks, one after the other, in lines that begin under the end of `before`."""
    indent, line, used, empty = " " * _columns(before), before, _columns(before), True
    space = False
    for text, ink in parts:
        for piece in re.findall(r"\s+|\S+", text):
            if piece.isspace():
                space = True
                continue
            word = visible(piece)
            if not empty and used + space + _columns(word) > width and space:
                yield line.rstrip()
                line, used, empty, space = indent, _columns(indent), True, False
            gap = " " if space and not empty else ""
            line += f"{gap}{ink}{word}{INKS['new'][1] if ink else ''}"
            used, empty, space = used + len(gap) + _columns(word), False, False
    yield line.rstrip()


def _cut(text: str, width: int) -> str:
    """A text of one line in at most so many columns."""
    text = visible(" ".join(text.split()))
    if _columns(text) <= width:
        return text
    while _columns(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def _columns(text: str) -> int:
    """How many columns a text takes: two for wide characters, none for marks over others (UAX 11)."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
