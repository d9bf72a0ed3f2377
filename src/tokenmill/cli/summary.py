"""`tokenmill summary`: what the pipeline made, in one screen: losses, answers, costs, and what to type next."""

import argparse
import math
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.status import COMMIT, after_training
from tokenmill.display.terminal import console, print_columns

if TYPE_CHECKING:
    import pandas as pd

    from tokenmill.evaluation.params import Mark
    from tokenmill.evaluation.results import Evaluation
    from tokenmill.models.under_way import UnderWay

WIDTH = 100
"""Columns of an answer in a pipe, and at most on a terminal."""

EXAMPLES = """\
  tokenmill summary    after `dvc repro`
"""


def run(_: argparse.Namespace) -> None:
    """Print the summary of the pipeline in the current folder."""
    from tokenmill.core import paths  # noqa: PLC0415
    from tokenmill.costs import COSTS, publish_times, read_costs  # noqa: PLC0415 (pydantic)
    from tokenmill.evaluation.results import read_evaluation  # noqa: PLC0415 (pydantic)
    from tokenmill.model.manifest import read_manifest  # noqa: PLC0415 (pydantic)
    from tokenmill.models.find import is_finished  # noqa: PLC0415 (pydantic)
    from tokenmill.models.under_way import under_way  # noqa: PLC0415 (pydantic)

    if not is_finished(Path()) and (run := under_way(Path())):
        _print_under_way(run)
        return
    made, evaluation = made_lines(), read_evaluation(paths.EVALUATION)
    publish_times(paths.resume_root(), read_manifest(paths.MODEL).fingerprint, paths.METRICS)
    print()
    print_columns([*made, *cost_lines(read_costs(paths.METRICS / COSTS))])
    print()
    _print_losses(evaluation)
    print()
    _print_answers(evaluation)
    print("\nnext:")
    commands = [
        (". .venv/bin/activate", "once per terminal, then:"),
        COMMIT,
        ("dvc repro", "after a change: only what it touches"),
        *after_training(evaluation.epochs[-1].epoch, root=Path()),
    ]
    print_columns([(f"  {command}", meaning) for command, meaning in commands])
    print("all answers: reports/samples.md   curves: dvc plots show")


def _print_under_way(run: "UnderWay") -> None:
    """What is known of a training that is not finished."""
    console().print(run.sentence)
    ends = [(f"{row.epoch:.0f}", f"{row.val_loss:.4f}", f"{row.val_bits_per_byte:.4f}") for row in run.epoch_ends]
    if ends:
        print()
        print_columns([("epoch", "val loss", "bits per byte"), *ends], right=range(3))
    print()
    print_columns(
        [("  tokenmill watch", "losses, time left, answers now"), ("  tokenmill generate", "ask its newest epoch")]
    )


def made_lines() -> list[tuple[str, str]]:
    """Each artefact, and a sentence about it, from the metrics.

    Raises:
        UserError: a stage has not run yet.
    """
    from tokenmill.core import metrics  # noqa: PLC0415 (pydantic)

    clean, tokenizer = metrics.read_metrics(metrics.CleanMetrics), metrics.read_metrics(metrics.TokenizerMetrics)
    tokens, train = metrics.read_metrics(metrics.TokensMetrics), metrics.read_metrics(metrics.TrainMetrics)
    return [
        ("data/clean", f"{clean.documents_kept:,} of {clean.documents_read:,} documents kept"),
        ("data/tokenizer", f"{tokenizer.vocab_size:,} entries, {tokenizer.bytes_per_token:.2f} bytes per token"),
        ("data/tokens", f"{tokens.train_tokens:,} tokens to train on, {tokens.val_tokens:,} to validate"),
        ("models/gpt", f"{train.parameters:,} parameters, {train.epoch} epochs, {train.tokens:,} tokens seen"),
    ]


def cost_lines(costs: "pd.DataFrame") -> list[tuple[str, str]]:
    """What all epochs took, and each of them, as far as it is known; none for an empty table."""
    from tokenmill.costs import AMOUNTS, Cost  # noqa: PLC0415 (pydantic)
    from tokenmill.display.training import amounts  # noqa: PLC0415 (pydantic)

    if costs.empty:
        return []
    total, share = Cost.of(costs[AMOUNTS].sum(min_count=1)), float(costs.loc[:, "utilisation"].mean())
    peak = "" if math.isnan(share) else f", {share:.0%} of the device's peak"
    currency = costs["currency"].iloc[-1]
    text = f"{amounts(total, currency)} for {costs['flops'].sum():.3g} floating-point operations{peak}"
    epochs = [f"epoch {c['epoch']}: {amounts(Cost.of(c), c['currency'])}" for c in costs.to_dict("records")]
    return [("training took", text), *(("", epoch) for epoch in epochs)]


def _print_losses(evaluation: "Evaluation") -> None:
    """The losses of every epoch, and its right answers; recall and generalisation apart where prompts are marked."""
    scores: dict[str, Mark | None] = {}
    if evaluation.is_marked:
        scores = {"right: seen": "seen", "held out": "held_out"}
    elif evaluation.epochs[-1].expected:
        scores = {"right answers": None}
    rows = [("epoch", "train loss at end", "val loss", "perplexity", "bits/byte", *scores)]
    for row in evaluation.epochs:
        losses = f"{row.train_loss:.4f}", f"{row.val_loss:.4f}", f"{row.perplexity:.2f}", f"{row.bits_per_byte:.4f}"
        rows.append((str(row.epoch), *losses, *(str(evaluation.score(row, mark)) for mark in scores.values())))
    print_columns(rows, right=range(len(rows[0])))


def _print_answers(evaluation: "Evaluation") -> None:
    """Every question, and under it the answers of the first and the last epoch, each on one line; then the true one."""
    width = min(WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDTH
    first, last = evaluation.epochs[0], evaluation.epochs[-1]
    for number, question in enumerate(evaluation.questions):
        print_columns([(textwrap.shorten(question.prompt, width, placeholder=" …"),)])
        rows = []
        for row in (first, last) if first is not last else (last,):
            answer = row.answers[number]
            mark = {True: "right", False: "wrong", None: ""}[answer.found]
            rows.append(
                (f"  epoch {row.epoch:<4}{mark:<5}", textwrap.shorten(answer.greedy, width - 19, placeholder=" …"))
            )
        if question.truth is not None:
            rows.append(("  in the text", textwrap.shorten(question.truth, width - 19, placeholder=" …")))
        print_columns(rows)
