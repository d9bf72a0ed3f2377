"""What the pipeline made, in one screen: losses, answers at the first and the last epoch, what to type next."""

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.commands import next_step
from tokenmill.core import paths
from tokenmill.core.files import read_json
from tokenmill.costs import AMOUNTS, COSTS, Cost, read_costs
from tokenmill.display.training import amounts
from tokenmill.evaluation.results import Evaluation, read_evaluation

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 100


def _next(epochs: int) -> list[str]:
    """What to type now."""
    commands = [
        (". .venv/bin/activate", "once per terminal, then:"),
        next_step.COMMIT,
        ("dvc repro", "after a change: only what it touches"),
        *next_step.after_training(epochs),
    ]
    return ["next:", *next_step.listed(commands), "all answers: reports/samples.md   curves: dvc plots show"]


def render(root: Path) -> str:
    """The summary of the pipeline in the folder `root`.

    Raises:
        UserError: a stage has not run yet.
    """
    clean, tokenizer, tokens, train = (
        read_json(root / paths.METRICS / f"{name}.json") for name in ("clean", "tokenizer", "tokens", "train")
    )
    evaluation = read_evaluation(root / paths.EVALUATION)
    made = [
        ("data/clean", f"{clean['documents_kept']:,} of {clean['documents_read']:,} documents kept"),
        ("data/tokenizer", f"{tokenizer['vocab_size']:,} entries, {tokenizer['bytes_per_token']:.2f} bytes per token"),
        ("data/tokens", f"{tokens['train_tokens']:,} tokens to train on, {tokens['val_tokens']:,} to validate"),
        ("models/gpt", f"{train['parameters']:,} parameters, {train['epoch']} epochs, {train['tokens']:,} tokens seen"),
    ]
    costs = _costs(read_costs(root / paths.METRICS / COSTS))
    head = ["", *(f"{name:<15}{text}" for name, text in made), *costs]
    lines = [*head, "", *_losses(evaluation), "", *_answers(evaluation)]
    return "\n".join([*lines, "", *_next(evaluation.epochs[-1].epoch)])


def _costs(costs: "pd.DataFrame") -> list[str]:
    """What the epochs took on this machine, each and together, as far as it is known."""
    if costs.empty:
        return []
    total = Cost.of(costs[AMOUNTS].sum(min_count=1))
    share = float(costs.loc[:, "utilisation"].mean())
    peak = "" if math.isnan(share) else f", {share:.0%} of the device's peak"
    currency = costs["currency"].iloc[-1]
    text = f"{amounts(total, currency)} for {costs['flops'].sum():.3g} floating-point operations{peak}"
    return [
        f"{'training took':<15}{text}",
        *(f"{'':<15}epoch {c['epoch']}: {amounts(Cost.of(c), c['currency'])}" for c in costs.to_dict("records")),
    ]


def _losses(evaluation: Evaluation) -> list[str]:
    head = "epoch  train loss  val loss  perplexity  bits per byte  right answers"
    rows = [
        f"{row.epoch:>5}  {row.train_loss:>10.4f}  {row.val_loss:>8.4f}  {row.perplexity:>10.2f}  "
        f"{row.bits_per_byte:>13.4f}  {f'{sum(row.expected)} of {len(row.expected)}':>13}"
        for row in evaluation.epochs
    ]
    return [head, *rows]


def _answers(evaluation: Evaluation) -> list[str]:
    first, last = evaluation.epochs[0], evaluation.epochs[-1]
    lines = []
    for number, question in enumerate(evaluation.questions):
        lines.append(_shorten(question.prompt, ""))
        for row in (first, last) if first is not last else (last,):
            answer = row.answers[number]
            mark = {True: "right", False: "wrong", None: ""}[answer.found]
            lines.append(_shorten(answer.greedy, f"  epoch {row.epoch:<3}{mark:<7}"))
    return lines


def _shorten(text: str, before: str) -> str:
    return before + textwrap.shorten(text, WIDTH - len(before), placeholder=" …")
