"""What changed from one text to the next, word by word.

Answers to one prompt beside each other, each with what it changed of the one before.

`reports/samples.md`: the same prompts at different epochs, side by side, and each epoch's numbers.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, TypeAlias

from tokenmill.evaluation.results import Answer, Evaluation, Question

Kind: TypeAlias = Literal["same", "new", "gone"]


WORDS = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")
"""A word or a sign, with the white space behind it."""


ALIKE = 0.4
"""Texts that share less than this (difflib's ratio) have nothing to compare; one is simply another text."""


@dataclass(frozen=True)
class Span:
    """A run of words of one kind; what is gone stands where it was."""

    kind: Kind
    text: str


def changes(before: str, after: str) -> list[Span]:
    """`after` as spans; those that are the same or new are all of it, those that are the same or gone are `before`.

    White space is not compared, and stands as it does in `after`. Texts that have little in common have no new words:
    all of `after` is one span, as if nothing had been before.

    Example:
        >>> [(span.kind, span.text) for span in changes("a red cat", "a blue cat")]
        [('same', 'a '), ('gone', 'red '), ('new', 'blue '), ('same', 'cat')]
    """
    old, new = WORDS.findall(before), WORDS.findall(after)
    matcher = SequenceMatcher(None, [word.rstrip() for word in old], [word.rstrip() for word in new], autojunk=False)
    if matcher.ratio() < ALIKE:
        return [Span("same", after)]
    spans = []
    for tag, i, j, k, n in matcher.get_opcodes():
        if tag == "equal":
            spans.append(Span("same", "".join(new[k:n])))
            continue
        gone, come = "".join(old[i:j]), "".join(new[k:n])
        apart = i and old[i - 1][-1:].isspace() and not new[k - 1][-1:].isspace()
        spans += [Span("gone", " " * apart + gone)] if gone.strip() else []
        spans += [Span("new" if come.strip() else "same", come)] if come else []
    return spans


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


def render(evaluation: Evaluation) -> str:
    """The whole report as Markdown."""
    parts = ["# Same prompts, different epochs", _numbers(evaluation)]
    for number, question in enumerate(evaluation.questions):
        parts.append(_answers(question, [(result.epoch, result.answers[number]) for result in evaluation.epochs]))
    return "\n\n".join(parts) + "\n"


def _numbers(evaluation: Evaluation) -> str:
    head = ["epoch", "train loss", "validation loss", "perplexity", "bits per byte", "expected found", "repetition"]
    rows = [
        [
            str(result.epoch),
            f"{result.train_loss:.4f}",
            f"{result.val_loss:.4f}",
            f"{result.perplexity:.2f}",
            f"{result.bits_per_byte:.4f}",
            f"{sum(result.expected)} of {len(result.expected)}",
            f"{result.repetition:.2f}",
        ]
        for result in evaluation.epochs
    ]
    return _table(head, rows)


def _answers(question: Question, answers: Sequence[tuple[int, Answer]]) -> str:
    rows = []
    for epoch, answer in answers:
        mark = "" if answer.found is None else " ✓" if answer.found else " ✗"
        rows.append([f"{epoch}{mark}", cell(answer.greedy), cell(answer.sampled)])
    parts = [f"## {cell(question.prompt)}"]
    if question.expect is not None:
        parts.append(f"Expected: {cell(question.expect)}")
    if question.left_out:
        parts.append(f"Not in the tokenizer's alphabet, left out of the prompt: {cell(question.left_out)}")
    return "\n\n".join([*parts, _table(["epoch", "likeliest", "sampled"], rows)])


def cell(text: str) -> str:
    """Text as it must stand in a Markdown table to be read as it is."""
    text = html.escape(text, quote=False).replace("\\", "\\\\")
    for sign in "|*_`[]#~":
        text = text.replace(sign, "\\" + sign)
    return " <br> ".join(text.splitlines())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
