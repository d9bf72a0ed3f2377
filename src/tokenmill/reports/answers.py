"""The answers of several epochs side by side with changed words marked, and the answers of a
fine-tuned model under those of its base."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Literal

from tokenmill.core.errors import UserError
from tokenmill.evaluation.results import Answer, Evaluation, Question
from tokenmill.reports.page import render
from tokenmill.words.warnings import left_out_of_chats, unfit_tokenizer

if TYPE_CHECKING:  # it loads PyTorch
    from tokenmill.evaluation.evaluate import HeldOut, HeldOutAnswers

WORDS = re.compile(r"[\w\u200c\u200d]+\s*|[^\w\s]\s*|\s+")
"""Matches a word with its joiners or a punctuation mark, with the white space after it."""


SIMILAR = 0.4
"""The similarity (difflib's ratio) below which texts are not compared word by word."""


LOOPS = 0.3
"""The fraction of repeated 4-grams above which an answer counts as a loop."""


@dataclass(frozen=True)
class Span:
    """Consecutive words of one kind. Removed words are in the place where they were."""

    kind: Literal["same", "added", "removed"]
    text: str


def word_changes(before: str, after: str) -> list[Span]:
    """The differences between two texts as spans.

    Same and added spans together are `after`; same and removed spans together are `before`, but for
    white space, which is not compared and stands as in `after`. Texts with little in common give a
    single span with all of `after`.

    Example:
        >>> [(span.kind, span.text) for span in word_changes("a red cat", "a blue cat")]
        [('same', 'a '), ('removed', 'red '), ('added', 'blue '), ('same', 'cat')]
    """
    old = WORDS.findall(before)
    new = WORDS.findall(after)
    matcher = SequenceMatcher(
        None, [word.rstrip() for word in old], [word.rstrip() for word in new], autojunk=False
    )
    if matcher.ratio() < SIMILAR:
        return [Span("same", after)]
    spans = []
    for tag, i, j, k, n in matcher.get_opcodes():
        if tag == "equal":
            spans.append(Span("same", "".join(new[k:n])))
            continue
        removed = "".join(old[i:j])
        added = "".join(new[k:n])
        lost_space = i and old[i - 1][-1:].isspace() and not new[k - 1][-1:].isspace()
        spans += [Span("removed", " " * lost_space + removed)] if removed.strip() else []
        spans += [Span("added" if added.strip() else "same", added)] if added else []
    return spans


@dataclass(frozen=True)
class Version:
    """The answer of one column to a prompt."""

    name: str
    """The name of the column."""
    answer: Answer | None
    """The answer; None if this column's run did not have the prompt."""
    spans: list[Span]
    """The text that is shown first, divided by its changes."""
    other: str
    """The text that is folded away: the sampled answer, or the greedy one of an open question."""
    is_unchanged: bool
    """Whether the text that is shown first is the same as in the column before."""
    loops: bool
    """Whether that text is a greedy answer that repeats itself."""

    @property
    def mark(self) -> str:
        """`right` or `wrong`; empty if no text was expected."""
        found = self.answer.found if self.answer else None
        return "" if found is None else "right" if found else "wrong"


@dataclass(frozen=True)
class PromptAnswers:
    """A prompt and its answers."""

    question: Question
    versions: list[Version]


def compare_answers(
    question: Question, answers: Sequence[tuple[str, Answer | None]]
) -> PromptAnswers:
    """Compare each answer with the last answer before it. Each comes with the name of its
    column."""
    versions: list[Version] = []
    before: str | None = None
    for name, answer in answers:
        if answer is None:
            versions.append(Version(name, None, [], "", is_unchanged=False, loops=False))
            continue
        first, other = question.in_order(answer)
        spans = [Span("same", first)] if before is None else word_changes(before, first)
        loops = answer.repetition > LOOPS and not question.is_open
        versions.append(
            Version(name, answer, spans, other, is_unchanged=before == first, loops=loops)
        )
        before = first
    return PromptAnswers(question, versions)


def beside_base(
    base: Evaluation,
    tuned: Evaluation,
    held_out: "Sequence[HeldOutAnswers]",
    *,
    chats: "HeldOut",
    text_bytes_per_token: float,
) -> str:
    """A page in Markdown with the answers of a fine-tuned model under those of the model that it
    started from.

    Args:
        base: the evaluation of the base, with the same prompts as `tuned`.
        tuned: the evaluation of all epochs of the fine-tuned model.
        held_out: answers to questions of held-out chats.
        chats: what the stage `finetune` recorded of its chats.
        text_bytes_per_token: of the text that the tokenizer was learned from.

    Raises:
        UserError: the two evaluations have different prompts.
    """
    if base.questions != tuned.questions:
        raise UserError(
            "the base model was asked other prompts; `dvc repro evaluate` asks it the same."
        )
    start = base.epochs[-1].model_copy(update={"epoch": 0})
    both = Evaluation(questions=tuned.questions, epochs=[start, *tuned.epochs])
    warnings = [
        unfit_tokenizer(chats.bytes_per_token, text=text_bytes_per_token),
        left_out_of_chats(chats.left_out, texts=chats.texts, context_length=chats.context_length),
    ]
    return render("finetuned.md", evaluation=both, held_out=held_out, warnings=warnings)
