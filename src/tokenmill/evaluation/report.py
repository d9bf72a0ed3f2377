"""`reports/samples.md`: the same prompts at different epochs, side by side, and each epoch's numbers."""

import html
from collections.abc import Sequence

from tokenmill.evaluation.results import Answer, Evaluation, Question


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
