"""`tokenmill summary`: losses, answers and costs on one screen. `tokenmill` without a command: the
state of the project.

Both end with the commands to type next.
"""

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from tokenmill import git
from tokenmill.cli.main import Parser, add_json
from tokenmill.cli.preset import is_own_text_at_defaults
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.display import amounts, console, print_columns, print_record, shortened
from tokenmill.words.units import counted, fixed, perplexity
from tokenmill.words.warnings import unfit_tokenizer

if TYPE_CHECKING:
    from tokenmill.costs import CostRow
    from tokenmill.doctor.environment import Finding, Project
    from tokenmill.evaluation.results import EpochResult, Evaluation
    from tokenmill.model.manifest import TrainedWith
    from tokenmill.runs.under_way import UnderWay
    from tokenmill.schema import AllParams

Commands = list[tuple[str, str]]
"""Commands to type, each with what it does."""

COMMIT = ("git add -A && git commit", "keep dvc.lock with its metrics: a clone then reruns nothing")

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


def _next(evaluation: "Evaluation") -> Commands:
    after_a_change = ("dvc repro", "after a change: only what it touches")
    commit = [COMMIT] * _has_git(Path())
    return [*commit, after_a_change, *after_training(evaluation, root=Path())]


def _has_git(root: Path) -> bool:
    """Whether the project is in a repository of git. Where DVC does without (`core.no_scm`), there
    are neither experiments nor refs."""
    return git.ask(root, "rev-parse", "--git-dir") is not None


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
        "epoch": row.epoch,
        "train_loss": row.train_loss,
        "val_loss": row.val_loss,
        "perplexity": row.perplexity,
        "bits_per_byte": row.bits_per_byte,
        "right": right,
        "asked": asked,
        "seconds": spent and spent.seconds,
        "money": spent and spent.money,
        "currency": spent and spent.currency,
    }


def _record_under_way(run: "UnderWay") -> dict[str, Any]:
    """The same of a training that is not finished; what its stages have not made is left out."""
    epochs = [
        {
            "epoch": int(row.epoch),
            "val_loss": row.val_loss,
            "bits_per_byte": row.val_bits_per_byte,
        }
        for row in run.epoch_ends
    ]
    return {
        "state": "training" if run.is_on else "diverged" if run.run.diverged else "stopped",
        "sentence": run.sentence,
        "epochs": epochs,
        "next": _as_records(_while_training(run)),
    }


def _as_records(commands: Commands) -> list[dict[str, str]]:
    return [{"command": command, "meaning": meaning} for command, meaning in commands]


def _print_under_way(run: "UnderWay") -> None:
    console().print(run.sentence)
    ends = [
        (f"{row.epoch:.0f}", fixed(row.val_loss), fixed(row.val_bits_per_byte))
        for row in run.epoch_ends
    ]
    if ends:
        print()
        print_columns([("epoch", "val loss", "bits per byte"), *ends], right=range(3))
    print()
    _print_commands(_while_training(run))


def _while_training(run: "UnderWay") -> Commands:
    """The commands for a training that is under way, or that stopped or diverged."""
    commands = [("tokenmill watch", "losses, time left, cost, answers now")]
    commands += [("tokenmill generate", "ask its newest epoch")] if run.epochs else []
    if run.is_on:
        return commands
    meaning = "or the same `dvc exp run`: training continues where it stopped"
    if run.run.diverged:
        meaning = "a new training; the same one would diverge again"
    return [(run.way_on, meaning), *commands]


def _print_commands(commands: Commands) -> None:
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
    return [
        ("data/clean", f"{clean.documents_kept:,} of {clean.documents_read:,} documents kept"),
        (
            "data/tokenizer",
            f"{tokenizer.vocab_size:,} entries, {tokenizer.bytes_per_token:.2f} bytes per token",
        ),
        (
            "data/tokens",
            f"{tokens.train_tokens:,} tokens to train on, {tokens.val_tokens:,} to validate",
        ),
        (
            "models/gpt",
            (
                f"{train.parameters:,} parameters, {counted(train.epoch, 'epoch')}, "
                f"{train.tokens:,} tokens seen"
            ),
        ),
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
    from tokenmill.formats import metrics

    method = _finetuned_by(root)
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


def _finetuned_by(root: Path) -> str | None:
    """The method of the finished fine-tuning of the model that params.yaml asks for, if there is
    one."""
    from tokenmill.dvc_lock import Lock

    methods = _params(root).finetune.methods
    return methods[0] if methods and Lock.read(root).is_finetuned(methods[0], root) else None


def _params(root: Path) -> "AllParams":
    from tokenmill.core.params import PARAMS_FILE, load
    from tokenmill.schema import AllParams

    return load(AllParams, root / PARAMS_FILE)


def warnings(evaluation: "Evaluation", root: Path) -> list[str]:
    """What the numbers of the project at `root` say that one may overlook, as sentences."""
    from tokenmill.formats import metrics

    frequencies = metrics.read_metrics(metrics.DataMetrics, root).unigram_bits_per_byte
    found = evaluation.warnings(frequencies)
    if _finetuned_by(root):
        chats = metrics.read_metrics(metrics.FinetunedTrainMetrics, root)
        text = metrics.read_metrics(metrics.TokenizerMetrics, root).bytes_per_token
        found += filter(None, [unfit_tokenizer(chats.train_answer_bytes_per_token, text=text)])
    return found


def activation() -> Commands:
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
        losses = (
            fixed(row.train_loss),
            fixed(row.val_loss),
            perplexity(row.perplexity),
            fixed(row.bits_per_byte),
        )
        rows.append(
            (
                str(row.epoch),
                *losses,
                *(str(evaluation.score(row, mark)) for mark in scores.values()),
            )
        )
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


@dataclass(frozen=True)
class Status:
    """The state of a project in a sentence, and the next commands, the likeliest first."""

    sentence: str
    commands: Commands


def print_status() -> None:
    """Print the state of the project in the current folder."""
    found = status(Path())
    console().print(found.sentence)
    print()
    _print_commands(found.commands)
    print()
    console().print("`tokenmill --help` lists the commands, `tokenmill doctor` says what is wrong")


def status(root: Path) -> Status:
    """The state of the folder `root`."""
    here = root.resolve()
    project = paths.enclosing_project(here)
    if project == here:
        return _inside(root)
    if project:
        return Status(
            f"{here} is inside the project {project}.",
            [(f"cd {quote(str(project))}", "the project's root")],
        )
    get = [
        ("git clone URL tokenmill && cd tokenmill", "the repository of TokenMill, or your fork"),
        ("make repro", "set up the environment, then run the pipeline on the built-in sample"),
    ]
    return Status(
        f"{here} is no TokenMill project: there is no dvc.yaml beside a params.yaml.", get
    )


def _inside(root: Path) -> Status:
    """The state of a project: a problem to fix, a run to wait for, or else what `dvc status`
    says."""
    from tokenmill.doctor import dvc
    from tokenmill.doctor.environment import Project, check_running, is_writable
    from tokenmill.runs.under_way import unfinished
    from tokenmill.schema import check_all, with_way_back

    params = root / "params.yaml"
    try:
        with with_way_back(params):
            check_all(params)
    except UserError as error:
        return Status(
            str(error), [("tokenmill params", "every parameter with its values and its meaning")]
        )
    project = Project(root)
    (found,) = dvc.check_repository(project)
    if project.repo is None:
        return Status(found.text, [("tokenmill doctor", "what else is wrong, and how to fix it")])
    if run := unfinished(root):
        return Status(run.sentence, _while_training(run))
    if not is_writable(root):
        return Status(
            f"{root.resolve()} cannot be written: what is here can be read, but nothing can run.",
            [
                ("tokenmill summary", "losses and answers"),
                ("tokenmill generate", "ask the model"),
                ("tokenmill doctor", "what else is wrong, and how to fix it"),
            ],
        )
    running = check_running(root)
    if running.fix:
        return Status(
            f"{running.text}: {running.fix}",
            [("tokenmill doctor", "whether anything else is in the way")],
        )
    (found,) = dvc.check_pipeline(project)
    return _as_compared(project, found)


def _as_compared(project: "Project", found: "Finding") -> Status:
    """The state that `dvc status` says, as the finding about the pipeline tells it."""
    from tokenmill.doctor import dvc

    root, pipeline = project.root, project.pipeline
    if pipeline is None:
        return Status(
            found.text, [("dvc status", "what is outdated"), ("dvc repro", "run just that")]
        )
    if false := next(iter(dvc.check_model(project)), None):
        status = Status(f"{false.text}.", [(str(false.fix), "train what params.yaml asks for")])
    elif pipeline.outdated:
        status = _outdated(root, pipeline.outdated, repro=dvc.way_on(pipeline, "dvc repro"))
    elif pipeline.uncached:
        status = Status(f"{found.text}.", [(str(found.fix), "put into the cache what is here")])
    else:
        status = _trained(root)
    for frozen in dvc.check_frozen(project):
        status = replace(status, sentence=f"{status.sentence}\n{frozen.text}: {frozen.fix}")
    return status


def _outdated(root: Path, stages: Sequence[str], *, repro: str) -> Status:
    """The state with stages to run, which the command `repro` does."""
    from tokenmill.doctor import dvc

    named = ", ".join(stages)
    if dvc.nothing_ran(root):
        fetch = [(dvc.FETCH, "fetch what the remote has, run the rest")]
        return Status(
            "nothing has run here yet.",
            [(repro, f"run {named}"), *fetch * dvc.may_be_fetched(root)],
        )
    return Status(
        f"to run: {named}.",
        [
            (
                repro,
                (
                    "run these, except where inputs turn out the same; "
                    "training continues where it stopped"
                ),
            ),
            ("dvc status", "what changed; `dvc params diff` compares with the last commit"),
        ],
    )


def _trained(root: Path) -> Status:
    from tokenmill.doctor.environment import uncommitted
    from tokenmill.evaluation.results import Evaluation
    from tokenmill.formats.records import read_record

    evaluation = read_record(root / paths.EVALUATION, Evaluation)
    last = evaluation.epochs[-1]
    right = f", {sum(last.expected)} of {len(last.expected)} answers right" if last.expected else ""
    losses = f"{counted(last.epoch, 'epoch')}, validation loss {last.val_loss:.3f}"
    method = _finetuned_by(root)
    tuned = f"; fine-tuned by {method}" if method else ""
    sentence = f"trained: {losses}{right}{tuned} (`tokenmill summary`)"
    commands = after_training(evaluation, root=root)
    if uncommitted(root):
        return Status(f"{sentence}; not committed yet", [COMMIT, *commands])
    return Status(sentence, commands)


def after_training(evaluation: "Evaluation", *, root: Path) -> Commands:
    """The commands for the evaluated model of the project at `root`."""
    from tokenmill.core.params import PARAMS_FILE, read_yaml

    params = _params(root)
    commands: Commands = []
    if is_own_text_at_defaults(read_yaml(root / PARAMS_FILE)):
        meaning = "a model for your text; this one is made for the built-in text"
        commands.append(("tokenmill fit --minutes 10", meaning))
    commands += [
        *_asking_finetuned(root),
        _asking(evaluation),
        ("tokenmill demo", "the same in the browser"),
        *_training_on(root, params.model.n_layer, epochs=evaluation.epochs[-1].epoch),
        ("tokenmill compare", "experiments and epochs side by side"),
    ]
    if Path(params.data.raw) == paths.SAMPLE:
        commands.append(("tokenmill try /path/to/texts", "a model of your own text"))
    return commands


def _training_on(root: Path, layers: int, *, epochs: int) -> Commands:
    """How to train another model and to train this one further, and how its epochs compare."""
    from tokenmill.runs.find import is_of_workspace

    onwards = "continue training from here, not from scratch"
    if not _has_git(root):
        return [("dvc repro", f"{onwards}: first set train.epochs to {epochs + 2} in params.yaml")]
    commands = [
        (
            f"dvc exp run -S model.n_layer={layers + 2}",
            "an experiment; `tokenmill runs` lists them all",
        ),
        (f"dvc exp run -S train.epochs={epochs + 2}", onwards),
    ]
    if epochs > 1 and is_of_workspace(root, 1) and is_of_workspace(root, epochs):
        gained = "what the epochs in between gained"
        commands.append((f"dvc metrics diff epoch-1 epoch-{epochs}", gained))
    elif epochs > 1:
        compared = "write the refs epoch-1 to epoch-N of this run, to compare its epochs"
        commands.append(("dvc repro -sf report", compared))
    return commands


def _asking(evaluation: "Evaluation") -> tuple[str, str]:
    """How to let the model write: it chats if it is asked questions, else it continues texts."""
    if evaluation.asks or not evaluation.questions:
        return "tokenmill generate", "chat with the model in the terminal"
    beginning = " ".join(evaluation.questions[0].prompt.split()[:3])
    return f"tokenmill generate --text {quote(beginning)}", "let the model continue a text"


def _asking_finetuned(root: Path) -> Commands:
    from tokenmill.formats import metrics

    if _finetuned_by(root) is None:
        return []
    epoch = metrics.read_metrics(metrics.FinetunedTrainMetrics, root).epoch
    folder = (paths.FINETUNED / f"epoch-{epoch}").as_posix()
    return [(f"tokenmill generate --model {folder}", "chat with the fine-tuned model")]
