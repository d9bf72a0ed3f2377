"""`tokenmill summary`: losses, answers and costs on one screen. `tokenmill` without a command: the
state of the project. Both end with the commands to type next."""

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from tokenmill.cli.main import Parser, add_json
from tokenmill.core import paths
from tokenmill.display import console, print_columns, print_record, shortened
from tokenmill.progress import amounts
from tokenmill.words.units import counted, fixed, perplexity
from tokenmill.words.warnings import unfit_tokenizer

if TYPE_CHECKING:
    from tokenmill.costs import CostRow
    from tokenmill.doctor.next_steps import Commands
    from tokenmill.evaluation.results import EpochResult, Evaluation
    from tokenmill.model.manifest import TrainedWith
    from tokenmill.runs.under_way import UnderWay

WIDTH = 100
"""The width in columns of an answer in a pipe, and the greatest width on a terminal."""

EXAMPLES = """\
  tokenmill summary                              after `dvc repro`
  tokenmill summary --json | jq '.epochs[-1]'    its numbers for a program
"""


def add_arguments(parser: Parser) -> None:
    """Declare the form of the summary."""
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Print the summary of the pipeline in the current folder, in the form that was asked for."""
    print_summary(as_json=options.json)


def print_summary(*, as_json: bool = False) -> None:
    """Print the summary of the pipeline in the current folder."""
    from tokenmill.costs import epoch_costs, find_times, publish_times, read_timing
    from tokenmill.formats.records import read_rows
    from tokenmill.model.manifest import read_manifest
    from tokenmill.runs.consistency import read_own_evaluation
    from tokenmill.runs.under_way import unfinished
    from tokenmill.training.history import EpochRow

    if run := unfinished(Path()):
        if as_json:
            print_record(_record_under_way(run))
        else:
            _print_under_way(run)
        return
    made = made_lines()
    manifest = read_manifest(paths.MODEL)
    ended = early_end_here(manifest.train)
    made += [("", f"training ended {ended}")] * bool(ended) + finetuned_lines(Path())
    evaluation = read_own_evaluation(Path())
    ends = [row.step for row in read_rows(paths.HISTORY, EpochRow)]
    table = find_times(paths.resume_root(), manifest.fingerprint)
    timing = read_timing(table, steps=max(ends, default=0))
    costs = epoch_costs(timing, ends)
    if as_json:
        print_record(_record(evaluation, costs, ended))
    else:
        _print_finished([*made, *cost_lines(costs)], evaluation)
    with contextlib.suppress(OSError):  # in a folder that is only to be read
        publish_times(paths.METRICS, timing, costs)


def _print_finished(lines: list[tuple[str, str]], evaluation: "Evaluation") -> None:
    # Both read files, of which a damaged one is refused before anything is shown
    warned = warnings(evaluation, Path())
    commands = [*activation(), *_next(evaluation)]
    print()
    print_columns(lines)
    print()
    _print_losses(evaluation)
    for warning in warned:
        console().print(f"warning: {warning}", style="yellow")
    print()
    _print_answers(evaluation)
    print("\nnext:")
    _print_commands(commands)
    print("all answers: reports/samples.md   curves: dvc plots show")


def _next(evaluation: "Evaluation") -> "Commands":
    from tokenmill.doctor.environment import uncommitted
    from tokenmill.doctor.next_steps import COMMIT, after_training

    after_a_change = ("dvc repro", "after a change: only what it touches")
    commit = [COMMIT] * bool(uncommitted(Path()))
    return [*commit, after_a_change, *after_training(evaluation, root=Path())]


def _record(evaluation: "Evaluation", costs: "Sequence[CostRow]", ended: str) -> dict[str, Any]:
    """The summary of a finished run for programs, which ended in such a way."""
    from tokenmill.formats import metrics

    clean = metrics.read_metrics(metrics.CleanMetrics)
    tokenizer = metrics.read_metrics(metrics.TokenizerMetrics)
    tokens = metrics.read_metrics(metrics.TokensMetrics)
    spent = {row.epoch: row for row in costs}
    return {
        "state": "finished",
        "sentence": "",
        "early_end": ended,
        "documents_read": clean.documents_read,
        "documents_kept": clean.documents_kept,
        "vocab_size": tokenizer.vocab_size,
        "bytes_per_token": tokenizer.bytes_per_token,
        "train_tokens": tokens.train_tokens,
        "val_tokens": tokens.val_tokens,
        "parameters": metrics.read_metrics(metrics.TrainMetrics).parameters,
        "epochs": [_epoch(evaluation, row, spent.get(row.epoch)) for row in evaluation.epochs],
        "warnings": warnings(evaluation, Path()),
        "next": _as_records(_next(evaluation)),
    }


def _epoch(evaluation: "Evaluation", row: "EpochResult", spent: "CostRow | None") -> dict[str, Any]:
    right, asked = evaluation.score(row)
    return {
        **row.model_dump(exclude={"answers"}),
        "right": right,
        "asked": asked,
        "seconds": spent and spent.seconds,
        "money": spent and spent.money,
        "currency": spent and spent.currency,
    }


def _record_under_way(run: "UnderWay") -> dict[str, Any]:
    """The same of a training that is not finished; what its stages have not made is left out."""
    from tokenmill.doctor.next_steps import while_training

    epochs = [
        {"epoch": int(row.epoch), "val_loss": row.val_loss, "bits_per_byte": row.val_bits_per_byte}
        for row in run.epoch_ends
    ]
    return {
        "state": "training" if run.is_on else "diverged" if run.run.diverged else "stopped",
        "sentence": run.sentence,
        "epochs": epochs,
        "next": _as_records(while_training(run)),
    }


def _as_records(commands: "Commands") -> list[dict[str, str]]:
    return [{"command": command, "meaning": meaning} for command, meaning in commands]


def _print_under_way(run: "UnderWay") -> None:
    from tokenmill.doctor.next_steps import while_training

    console().print(run.sentence)
    ends = [
        (f"{row.epoch:.0f}", fixed(row.val_loss), fixed(row.val_bits_per_byte))
        for row in run.epoch_ends
    ]
    if ends:
        print()
        print_columns([("epoch", "val loss", "bits per byte"), *ends], right=range(3))
    print()
    _print_commands(while_training(run))


def _print_commands(commands: "Commands") -> None:
    print_columns([(f"  {command}", meaning) for command, meaning in commands])


def made_lines() -> list[tuple[str, str]]:
    """Each artefact with a sentence about it, from the metrics.

    Raises:
        UserError: a stage has not run yet.
    """
    from tokenmill.formats import metrics

    clean = metrics.read_metrics(metrics.CleanMetrics)
    tokenizer = metrics.read_metrics(metrics.TokenizerMetrics)
    tokens = metrics.read_metrics(metrics.TokensMetrics)
    train = metrics.read_metrics(metrics.TrainMetrics)
    kept = f"{clean.documents_kept:,} of {clean.documents_read:,} documents kept"
    entries = f"{tokenizer.vocab_size:,} entries, {tokenizer.bytes_per_token:.2f} bytes per token"
    split = f"{tokens.train_tokens:,} tokens to train on, {tokens.val_tokens:,} to validate"
    epochs = f"{train.parameters:,} parameters, {counted(train.epoch, 'epoch')}"
    return [
        ("data/clean", kept),
        ("data/tokenizer", entries),
        ("data/tokens", split),
        ("models/gpt", f"{epochs}, {train.tokens:,} tokens seen"),
    ]


def early_end_here(train: "TrainedWith") -> str:
    """In words, how training with these parameters ended here; empty if after its last epoch
    alone."""
    from tokenmill.formats.records import read_rows
    from tokenmill.training.history import EpochRow, StepRow, early_end

    if not train.may_end_early:
        return ""
    epochs, steps = read_rows(paths.HISTORY, EpochRow), read_rows(paths.STEPS, StepRow)
    return early_end(train, epochs, steps[-1]) if epochs and steps else ""


def finetuned_lines(root: Path) -> list[tuple[str, str]]:
    """A sentence about the fine-tuned model of the project at `root`; none where there is none."""
    from tokenmill.doctor.next_steps import finetuned_by
    from tokenmill.formats import metrics

    method = finetuned_by(root)
    if method is None:
        return []
    trained = metrics.read_metrics(metrics.FinetunedTrainMetrics, root)
    found = metrics.read_metrics(metrics.FinetunedEvalMetrics, root)
    losses = (
        f"loss {trained.val_loss:.3f} on held-out chats, {found.base_text_loss:.3f} on the base's "
        f"text (before: {found.base_text_loss_before:.3f})"
    )
    return [
        (paths.FINETUNED.as_posix(), f"{method}, {counted(trained.epoch, 'epoch')}: {losses}"),
        ("", f"its answers beside the base's: {paths.FINETUNED_REPORT}"),
    ]


def warnings(evaluation: "Evaluation", root: Path) -> list[str]:
    """What the numbers of the project at `root` say that one may overlook, as sentences."""
    from tokenmill.doctor.next_steps import finetuned_by
    from tokenmill.formats import metrics

    frequencies = metrics.read_metrics(metrics.DataMetrics, root).unigram_bits_per_byte
    found = evaluation.warnings(frequencies)
    if finetuned_by(root):
        chats = metrics.read_metrics(metrics.FinetunedTrainMetrics, root)
        text = metrics.read_metrics(metrics.TokenizerMetrics, root).bytes_per_token
        found += filter(None, [unfit_tokenizer(chats.train_answer_bytes_per_token, text=text)])
    return found


def activation() -> "Commands":
    """How the shell gets the environment's commands, unless it has them."""
    here = Path(sys.prefix)
    if sys.prefix == sys.base_prefix or os.environ.get("VIRTUAL_ENV") == sys.prefix:
        return []
    where = here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here
    return [(f". {quote(str(where / 'bin/activate'))}", "once per terminal, then:")]


def cost_lines(costs: "Sequence[CostRow]") -> list[tuple[str, str]]:
    """Lines with the known time and cost of all epochs and of each one; none for an empty table."""
    from tokenmill.costs import NOTHING, total_utilisation

    if not costs:
        return []
    total = sum((row.cost for row in costs), start=NOTHING)
    flops = [row.flops for row in costs if row.flops is not None]
    work = f" for {sum(flops):.3g} floating-point operations" if len(flops) == len(costs) else ""
    share = total_utilisation(costs)
    peak = "" if share is None else f", {share:.0%} of the device's peak"
    text = f"{amounts(total)}{work}{peak}"
    epochs = [f"epoch {row.epoch}: {amounts(row.cost)}" for row in costs]
    return [("training took", text), *(("", epoch) for epoch in epochs)]


def _print_losses(evaluation: "Evaluation") -> None:
    """Print the losses of every epoch and its right answers: recall and generalisation apart where
    prompts are marked."""
    scores = evaluation.scores
    rows = [("epoch", "train loss", "val loss", "perplexity", "bits/byte", *scores)]
    for row in evaluation.epochs:
        losses = fixed(row.train_loss), fixed(row.val_loss), perplexity(row.perplexity)
        right = [str(evaluation.score(row, mark)) for mark in scores.values()]
        rows.append((str(row.epoch), *losses, fixed(row.bits_per_byte), *right))
    print_columns(rows, right=range(len(rows[0])))


def _print_answers(evaluation: "Evaluation") -> None:
    """Print every question, and under it the answers of the first and the last epoch, each on one
    line, then the true one."""
    width = min(WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDTH
    first = evaluation.epochs[0]
    last = evaluation.epochs[-1]
    for number, question in enumerate(evaluation.questions):
        print_columns([(shortened(question.prompt, width),)])
        rows = []
        for row in (first, last) if first is not last else (last,):
            answer = row.answers[number]
            mark = {True: "right", False: "wrong", None: ""}[answer.found]
            text, _ = question.in_order(answer)
            shown = shortened(text, width - 19) or "(nothing)"
            rows.append((f"  epoch {row.epoch:<4}{mark:<5}", shown))
        if question.truth is not None:
            rows.append(("  in the text", shortened(question.truth, width - 19)))
        print_columns(rows)


def print_status() -> None:
    """Print the state of the project in the current folder."""
    from tokenmill.doctor.status import status

    found = status(Path())
    console().print(found.sentence)
    print()
    _print_commands(found.commands)
    print()
    console().print("`tokenmill --help` lists the commands, `tokenmill doctor` says what is wrong")
