"""Write reports/index.html: a run on one page, from the raw text to the last epoch's answers.

Sentences say what each epoch changed, which one is best, and whether the model overfits.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.core.params import LARGEST_MEASURED
from tokenmill.costs import NOTHING, Cost, CostRow, TimingRow
from tokenmill.evaluation.benchmark_results import BenchmarksFile
from tokenmill.evaluation.document_losses import Group, GroupLoss
from tokenmill.evaluation.results import EpochResult, Evaluation, Question
from tokenmill.evaluation.trace import Traces
from tokenmill.formats.metrics import CleanReport
from tokenmill.formats.mixture import Seen
from tokenmill.formats.token_file import TokenMetadata
from tokenmill.model.manifest import Manifest
from tokenmill.reports.answers import PromptAnswers, compare_answers
from tokenmill.reports.charts import MOST_LINES, Chart, Series, line_chart, line_look
from tokenmill.reports.data_report import documents_by_reason, kept_and_dropped, text_flow
from tokenmill.reports.page import flat, render, signed
from tokenmill.training.history import EpochRow, StepRow, ValidationRow, early_end
from tokenmill.training.schedule import Workload
from tokenmill.words.units import fixed


@dataclass(frozen=True)
class Change:
    """The changes from the epoch before."""

    val_loss: float
    """The difference of the validation loss in nats per token; negative is better."""
    relative: float
    """The difference of the validation loss as a fraction of the loss before."""
    gained: list[int]
    """Indices of the prompts whose answer became right."""
    lost: list[int]
    """Indices of the prompts whose answer is no longer right."""
    answers: int
    """The number of answers that are different: of each prompt the one that is shown first."""


def change(questions: Sequence[Question], before: EpochResult, after: EpochResult) -> Change:
    """Compare two epochs that answered the same `questions`."""
    pairs = list(zip(before.answers, after.answers, strict=True))
    difference = after.val_loss - before.val_loss
    return Change(
        val_loss=difference,
        relative=difference / before.val_loss if before.val_loss else 0.0,
        gained=[number for number, (old, new) in enumerate(pairs) if new.found and not old.found],
        lost=[number for number, (old, new) in enumerate(pairs) if old.found and not new.found],
        answers=sum(
            question.in_order(old)[0] != question.in_order(new)[0]
            for question, (old, new) in zip(questions, pairs, strict=True)
        ),
    )


def best(evaluation: Evaluation) -> EpochResult:
    """The first epoch with the lowest validation loss."""
    return min(evaluation.epochs, key=lambda result: result.val_loss)


def verdict(evaluation: Evaluation) -> str:
    """One or two sentences with the numbers about whether the model overfits."""
    epochs = evaluation.epochs
    top = best(evaluation)
    first = epochs[0]
    last = epochs[-1]
    if first is last:
        return (
            f"After its one epoch the validation loss is {_gap(last)} the training loss; "
            "one epoch shows no trend."
        )
    if top is last:
        return (
            f"The validation loss is lowest after the last epoch: {_course(epochs)}. "
            f"{_gap_trend(first, last)}"
        )
    rise = (
        f"After epoch {top.epoch} the validation loss rose "
        f"from {fixed(top.val_loss)} to {fixed(last.val_loss)}"
    )
    if last.train_loss < top.train_loss:
        return (
            f"Overfitting. {rise}, while the training loss fell from {fixed(top.train_loss)} to "
            f"{fixed(last.train_loss)}: the model memorises its text. Take epoch {top.epoch}."
        )
    return (
        f"{rise}, and the training loss did not fall either ({fixed(top.train_loss)} to "
        f"{fixed(last.train_loss)}): this is not overfitting; look at the learning rate and the "
        f"gradient norm. Take epoch {top.epoch}."
    )


def _course(epochs: Sequence[EpochResult]) -> str:
    pairs = itertools.pairwise(epochs)
    rises = [str(new.epoch) for old, new in pairs if new.val_loss >= old.val_loss]
    if rises:
        return f"it did not fall in epoch {', '.join(rises)}"
    return "it fell in every epoch, more may still help"


def _gap_trend(first: EpochResult, last: EpochResult) -> str:
    begin = first.val_loss - first.train_loss
    end = last.val_loss - last.train_loss
    if end <= begin or end <= 0:
        return (
            f"It is {_gap(last)} the training loss "
            f"(after epoch {first.epoch}: {_gap(first)}): no overfitting."
        )
    return (
        f"Its distance to the training loss grew from {signed(begin, 4)} to {signed(end, 4)}: "
        "the model memorises more, but unseen text still gains."
    )


def _gap(result: EpochResult) -> str:
    gap = result.val_loss - result.train_loss
    return f"{abs(gap):.4f} {'below' if gap < 0 else 'above'}"


POINTS = 300
"""The most points of a line over steps. If there are more rows, their means are drawn."""


# The numbers of the losses' colours in page.css
TRAIN = 1
VALIDATION = 3


@dataclass(frozen=True)
class EpochTime:
    """The time of an epoch on the machines that trained it."""

    tokens_per_second: float
    """The median over the epoch's intervals, without validation and checkpoints."""
    seconds_per_step: float
    """The seconds of a step at this rate."""
    cost: Cost
    """The cost of everything, including validation, checkpoints and repeated steps."""


def epoch_times(
    timing: Sequence[TimingRow], costs: Sequence[CostRow], ends: Sequence[int], work: Workload
) -> dict[int, EpochTime]:
    """The times of the epochs that a timing.csv covers completely, by epoch.

    Args:
        timing: the rows of the run.
        costs: what these epochs cost.
        ends: the last step of each epoch.
        work: the model, parameters and length of the text of the run.
    """
    tokens_per_step = work.tokens_per_epoch / work.steps_per_epoch
    starts = [0, *ends]
    times = {}
    for epoch in costs:
        first, last = starts[epoch.epoch - 1], starts[epoch.epoch]
        rates = [row.tokens_per_second for row in timing if first < row.step <= last]
        rate = statistics.median(rates)
        seconds_per_step = tokens_per_step / rate if rate else math.inf
        times[epoch.epoch] = EpochTime(rate, seconds_per_step, epoch.cost)
    return times


@dataclass(frozen=True)
class RunRecord:
    """Everything that the page shows of a run."""

    evaluation: Evaluation
    history: Sequence[EpochRow]
    steps: Sequence[StepRow]
    times: Mapping[int, EpochTime]
    """The times by epoch, without epochs of unknown times."""
    clean: CleanReport
    tokens: TokenMetadata
    seen: Sequence[Seen]
    """How much an epoch sees of each source; empty if it sees all of the text once."""
    manifest: Manifest
    unigram_bits_per_byte: float
    """Bits per byte of a model that knows only the frequencies of tokens."""
    weights: Sequence[str]
    """The SHA-256 of every epoch's weights."""
    traces: Traces | None
    """What the answers share with the training text; None if that has no index."""
    benchmarks: BenchmarksFile
    """What every epoch reaches on benchmarks, if there are any."""
    groups: Mapping[Group, Sequence[GroupLoss]]
    """The losses of the validation text at every epoch, by source and by language."""
    validations: Sequence[ValidationRow] = ()
    """The validations within epochs."""

    @property
    def early_end(self) -> str:
        """How training ended, if not after its last epoch alone."""
        return early_end(self.manifest.train, self.history, self.steps[-1])


@dataclass(frozen=True)
class EpochLine:
    """A row in the table of epochs."""

    result: EpochResult
    row: EpochRow
    time: EpochTime | None
    change: Change | None
    """The change from the epoch before; None for the first epoch."""
    is_best: bool


def render_run_report(run: RunRecord) -> str:
    """The whole page."""
    evaluation = run.evaluation
    tokens = run.tokens.train.tokens + run.tokens.val.tokens
    return render(
        "run_report.html",
        run=run,
        lines=_lines(run),
        first=evaluation.epochs[0],
        last=evaluation.epochs[-1],
        verdict=verdict(evaluation),
        warnings=evaluation.warnings(run.unigram_bits_per_byte),
        groups=_groups(run),
        prompts=_prompts(evaluation),
        losses_by_epoch=_losses_by_epoch(evaluation),
        accuracy_by_epoch=_accuracy_by_epoch(run.benchmarks),
        losses_by_step=losses_by_step(run.steps, [*run.history, *run.validations]),
        learning_rate=_curve(run.steps, "learning_rate", "Learning rate by step"),
        gradient_norm=_curve(run.steps, "gradient_norm", "Gradient norm before clipping by step"),
        total=sum((time.cost for time in run.times.values()), NOTHING),
        text_flow=text_flow(run.clean, tokens),
        kept_and_dropped=kept_and_dropped(run.clean),
        drop_reasons=documents_by_reason(run.clean),
        parameters=[
            (name, list(flat({name: section.model_dump()})))
            for name, section in (("model", run.manifest.model), ("train", run.manifest.train))
        ],
        seen_in_all=sum(one.seen for one in run.seen),
    )


def _groups(run: RunRecord) -> dict[Group, list[GroupLoss]]:
    """The losses of the last epoch by source and by language, the largest group first, where there
    are several; a group without a name has None."""
    newest = run.manifest.epochs
    tables: dict[Group, list[GroupLoss]] = {
        group: [row for row in rows if row.epoch == newest] for group, rows in run.groups.items()
    }
    return {
        group: rows
        for group, rows in tables.items()
        if len({row.name for row in rows} - {None}) > 1
    }


def _lines(run: RunRecord) -> list[EpochLine]:
    epochs = run.evaluation.epochs
    top = best(run.evaluation)
    earlier = [None, *epochs[:-1]]
    return [
        EpochLine(
            result,
            row,
            run.times.get(result.epoch),
            change(run.evaluation.questions, before, result) if before else None,
            is_best=result is top and len(epochs) > 1,
        )
        for before, result, row in zip(earlier, epochs, run.history, strict=True)
    ]


def _prompts(evaluation: Evaluation) -> list[PromptAnswers]:
    names = [f"epoch {result.epoch}" for result in evaluation.epochs]
    answers = zip(*(result.answers for result in evaluation.epochs), strict=True)
    return [
        compare_answers(question, list(zip(names, row, strict=True)))
        for question, row in zip(evaluation.questions, answers, strict=True)
    ]


def _losses_by_epoch(evaluation: Evaluation) -> Chart:
    numbers = [result.epoch for result in evaluation.epochs]
    training = [result.train_loss for result in evaluation.epochs]
    validation = [result.val_loss for result in evaluation.epochs]
    series = []
    lines = ("training", training, TRAIN), ("validation", validation, VALIDATION)
    for name, losses, colour in lines:
        titles = [
            f"epoch {n}: {name} loss {fixed(loss)}" for n, loss in zip(numbers, losses, strict=True)
        ]
        series.append(Series(losses, colour, name, numbers, titles))
    course = f"from {fixed(validation[0])} to {fixed(validation[-1])}"
    alt = f"Losses by epoch; the validation loss goes {course}."
    return line_chart(series, x_label="epoch", y_label="nats per token", alt=alt)


def _accuracy_by_epoch(benchmarks: BenchmarksFile) -> Chart | None:
    """The accuracy on the benchmarks, or on as many of them as can be told apart."""
    series = []
    for number, result in enumerate(benchmarks.results[:MOST_LINES]):
        values = [100 * result.accuracy(score).value for score in result.epochs]
        epochs = [score.epoch for score in result.epochs]
        points = zip(epochs, values, strict=True)
        titles = [f"epoch {n}: {result.name} {value:.1f} %" for n, value in points]
        colour, stroke = line_look(number)
        series.append(Series(values, colour, result.name, epochs, titles, stroke))
    if not series:
        return None
    alt = f"Accuracy by epoch on {', '.join(one.name for one in series)}."
    return line_chart(series, x_label="epoch", y_label="per cent right", alt=alt)


def losses_by_step(
    steps: Sequence[StepRow], validations: Sequence[EpochRow | ValidationRow]
) -> Chart:
    """The training loss during training, and every validation loss."""
    x, losses = means(steps, "loss")
    rows = sorted(validations, key=lambda row: row.step)
    titles = [f"epoch {row.epoch:.3g}: validation loss {fixed(row.val_loss)}" for row in rows]
    training = Series(losses, TRAIN, "training", x)
    values, at = [row.val_loss for row in rows], [row.step for row in rows]
    validation = Series(values, VALIDATION, "validation", at, titles)
    course = f"from {fixed(losses[0])} to {fixed(losses[-1])}"
    return line_chart(
        [training, validation],
        log="y",
        x_label="step",
        y_label="nats per token, logarithmic",
        alt=f"Training loss by step, {course}, and validation loss.",
    )


def _curve(steps: Sequence[StepRow], column: str, title: str) -> Chart | None:
    """A column by step, without rows in which it is infinite; None if it is in all of them."""
    finite = [row for row in steps if abs(getattr(row, column)) <= LARGEST_MEASURED]
    if not finite:
        return None
    x, values = means(finite, column)
    return line_chart(
        [Series(values, TRAIN, x=x)],
        x_label="step",
        y_label=column.replace("_", " "),
        alt=f"{title}; at most {max(values):.4g}.",
    )


def means(steps: Sequence[StepRow], column: str) -> tuple[list[int], list[float]]:
    """Means over equally many rows each, at most POINTS of them. Each is at the last step of its
    rows."""
    rows = -(-len(steps) // POINTS)
    groups = [steps[start : start + rows] for start in range(0, len(steps), rows)]
    values = [float(np.mean([getattr(row, column) for row in group])) for group in groups]
    return [group[-1].step for group in groups], values
