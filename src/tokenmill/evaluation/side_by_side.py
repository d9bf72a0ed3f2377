"""Answers to one prompt beside each other, each with what it changed of the one before."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill.evaluation.results import Answer, Question
from tokenmill.evaluation.word_changes import Span, changes

LOOPS = 0.3
"""An answer of which more than this share repeats itself is said to."""


@dataclass(frozen=True)
class Version:
    """An answer in its column."""

    name: str
    """Of the column."""
    answer: Answer | None
    """None: this column was not asked."""
    spans: list[Span]
    """The greedy answer; its changes are marked."""
    is_as_before: bool
    """Whether the column before has the same answer."""

    @property
    def mark(self) -> str:
        """Whether the answer holds what was expected; empty where nothing was."""
        found = self.answer.found if self.answer else None
        return "" if found is None else "right" if found else "wrong"

    @property
    def loops(self) -> bool:
        """Whether the answer repeats itself."""
        return self.answer is not None and self.answer.repetition > LOOPS


@dataclass(frozen=True)
class SideBySide:
    """A prompt and its answers."""

    question: Question
    versions: list[Version]

    @property
    def marks(self) -> list[tuple[str, str]]:
        """Name and mark of every column."""
        return [(version.name, version.mark) for version in self.versions]


def side_by_side(question: Question, answers: Sequence[tuple[str, Answer | None]]) -> SideBySide:
    """The answers of columns with these names; each is compared with the last one before it that was asked."""
    versions: list[Version] = []
    before: Answer | None = None
    for name, answer in answers:
        if answer is None:
            versions.append(Version(name, None, [], is_as_before=False))
            continue
        spans = changes(before.greedy, answer.greedy) if before else [Span("same", answer.greedy)]
        same = before is not None and before.greedy == answer.greedy
        versions.append(Version(name, answer, spans, is_as_before=same))
        before = answer
    return SideBySide(question, versions)
