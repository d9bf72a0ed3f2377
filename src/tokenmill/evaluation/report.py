"""`reports/samples.md`: the same prompts at different epochs, side by side, and each epoch's numbers."""

import html
from collections.abc import Sequence

from tokenmill.evaluation.answers import Answer, Prompt
from tokenmill.evaluation.evaluate import Evaluation


def render(evaluation: Evaluation) -> str:
    """The whole report as Markdown."""
    parts = ["# Same prompts, different epochs", _numbers(evaluation)]
    for number, prompt in enumerate(evaluation.prompts):
        answers = [(result.epoch, result.answers[number]) for result in evaluation.epochs]
        parts.append(_answers(prompt, answers))
    return "\n\n".join(parts) + "\n"


def _numbers(evaluation: Evaluation) -> str:
    head = ["epoch", "train loss", "validation loss", "perplexity", "bits per byte", "expected found", "repetition"]
    rows = []
    for result in evaluation.epochs:
        metrics = result.metrics()
        expected = [a.found for a in result.answers if a.found is not None]
        rows.append(
            [
                str(result.epoch),
                f"{result.train_loss:.4f}",
                f"{result.val_loss:.4f}",
                f"{metrics['perplexity']:.2f}",
                f"{metrics['bits_per_byte']:.4f}",
                f"{sum(expected)} of {len(expected)}",
                f"{metrics['repetition']:.2f}",
            ]
        )
    return _table(head, rows)


def _answers(prompt: Prompt, answers: Sequence[tuple[int, Answer]]) -> str:
    rows = []
    for epoch, answer in answers:
        mark = "" if answer.found is None else " ✓" if answer.found else " ✗"
        rows.append([f"{epoch}{mark}", cell(answer.greedy), cell(answer.sampled)])
    title = f"## {cell(prompt.shown)}"
    notes = []
    if prompt.expect is not None:
        notes.append(f"Expected: {cell(prompt.expect)}")
    if prompt.left_out:
        notes.append(f"Not in the tokenizer's alphabet, left out of the prompt: {cell(prompt.left_out)}")
    return "\n\n".join([title, *notes, _table(["epoch", "likeliest", "sampled"], rows)])


def cell(text: str) -> str:
    """Text as it must stand in a Markdown table to be read as it is."""
    text = html.escape(text, quote=False).replace("\\", "\\\\")
    for sign in "|*_`[]#~":
        text = text.replace(sign, "\\" + sign)
    return " <br> ".join(text.splitlines())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
