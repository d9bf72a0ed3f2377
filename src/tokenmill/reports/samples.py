"""reports/samples.md: the numbers of each epoch, and the answers of all epochs to each prompt, as Markdown tables."""

import html
from collections.abc import Sequence

from tokenmill.evaluation.results import Answer, EpochResult, Evaluation, Question

HEAD = ("epoch", "train loss", "validation loss", "perplexity", "bits per byte", "expected found", "repetition")


def samples_markdown(evaluation: Evaluation) -> str:
    """The whole file."""
    parts = ["# Same prompts, different epochs", _table(HEAD, [_numbers(result) for result in evaluation.epochs])]
    for number, question in enumerate(evaluation.questions):
        parts += _prompt(question, [(result.epoch, result.answers[number]) for result in evaluation.epochs])
    return "\n\n".join(parts) + "\n"


def _numbers(result: EpochResult) -> list[str]:
    return [
        str(result.epoch),
        f"{result.train_loss:.4f}",
        f"{result.val_loss:.4f}",
        f"{result.perplexity:.2f}",
        f"{result.bits_per_byte:.4f}",
        f"{sum(result.expected)} of {len(result.expected)}",
        f"{result.repetition:.2f}",
    ]


def _prompt(question: Question, answers: Sequence[tuple[int, Answer]]) -> list[str]:
    """Paragraphs: the prompt, what was expected of it, a table with a row per epoch."""
    parts = [f"## {escaped(question.prompt)}"]
    if question.expect is not None:
        parts.append(f"Expected: {escaped(question.expect)}")
    if question.left_out:
        parts.append(f"Not in the tokenizer's alphabet, left out of the prompt: {escaped(question.left_out)}")
    rows = []
    for epoch, answer in answers:
        mark = "" if answer.found is None else " ✓" if answer.found else " ✗"
        rows.append([f"{epoch}{mark}", escaped(answer.greedy), escaped(answer.sampled)])
    return [*parts, _table(["epoch", "likeliest", "sampled"], rows)]


def escaped(text: str) -> str:
    """A text that Markdown shows as it is, on one line, as a table's cell must be."""
    text = html.escape(text, quote=False).replace("\\", "\\\\")
    for sign in "|*_`[]#~":
        text = text.replace(sign, "\\" + sign)
    return " <br> ".join(text.splitlines())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
