"""What each epoch took, out of the run's own history of times; nothing where that is on another machine.

The table is that of the run's fingerprint, `.resume/<fingerprint>/timing.csv`: its copy metrics/timing.csv may tell of
another run when the model came out of DVC's cache.

Where a training went: what each epoch changed, which was best, and whether it learned by heart, in words.

The run's curves as charts: losses by epoch and by step, learning rate, gradient norm.

reports/index.html: a whole run on one page, from the raw text to the last epoch's answers.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup

from tokenmill.core.token_file import TokenMetadata
from tokenmill.costs import Cost, epoch_costs, read_timing
from tokenmill.evaluation.results import EpochResult, Evaluation
from tokenmill.model.manifest import Manifest
from tokenmill.reports import charts, data_report
from tokenmill.reports.answers import SideBySide, side_by_side
from tokenmill.reports.data_stats import CleanReport
from tokenmill.reports.page import flat, render
from tokenmill.training.history import EpochRow, StepRow


@dataclass(frozen=True)
class EpochTime:
    """An epoch on the machines that trained it."""

    tokens_per_second: float
    """The median of its intervals, validation and checkpoints left out."""
    seconds_per_step: float
    """At that rate."""
    spent: Cost
    """All that it took: validation, checkpoints and repeated steps too."""


def run_times(timing: Path, history: Sequence[EpochRow]) -> dict[int, EpochTime]:
    """By epoch; without those that the table `timing` does not cover from beginning to end."""
    rows = read_timing(timing)
    if rows.empty or not history:
        return {}
    per_epoch = history[0].step
    costs = epoch_costs(rows, steps_per_epoch=per_epoch, flops_per_epoch=0, peak=None, currency="")
    times = {}
    for cost in costs.head(len(history)).to_dict("records"):
        end = cost["epoch"] * per_epoch
        rate = float(rows.loc[rows["step"].between(end - per_epoch + 1, end), "tokens_per_second"].median())
        tokens_per_step = history[0].tokens / per_epoch
        times[cost["epoch"]] = EpochTime(rate, tokens_per_step / rate, Cost.of(cost))
    return times


@dataclass(frozen=True)
class Change:
    """What an epoch changed of the one before."""

    val_loss: float
    """Nats per token; below zero is better."""
    share: float
    """The same as a share of the loss before."""
    gained: list[int]
    """Prompts, by their place, whose answer became right."""
    lost: list[int]
    """Prompts whose answer was right before."""
    answers: int
    """Prompts whose greedy answer is another one."""


def change(before: EpochResult, after: EpochResult) -> Change:
    """What came with `after`."""
    pairs = list(enumerate(zip(before.answers, after.answers, strict=True)))
    difference = after.val_loss - before.val_loss
    return Change(
        val_loss=difference,
        share=difference / before.val_loss if before.val_loss else 0.0,
        gained=[number for number, (old, new) in pairs if new.found and not old.found],
        lost=[number for number, (old, new) in pairs if old.found and not new.found],
        answers=sum(old.greedy != new.greedy for _, (old, new) in pairs),
    )


def best(evaluation: Evaluation) -> EpochResult:
    """The epoch with the lowest validation loss, the first of several."""
    return min(evaluation.epochs, key=lambda result: result.val_loss)


def verdict(evaluation: Evaluation) -> str:
    """Overfitting, or none, in a sentence or two with their numbers."""
    epochs, top = evaluation.epochs, best(evaluation)
    first, last = epochs[0], epochs[-1]
    if first is last:
        return f"After its one epoch the validation loss is {_gap(last)} the training loss; one epoch shows no trend."
    if top is last:
        return f"The validation loss is lowest after the last epoch: {_fell(epochs)}. {_gap_between(first, last)}"
    after = f"After epoch {top.epoch} the validation loss rose from {top.val_loss:.4f} to {last.val_loss:.4f}"
    if last.train_loss < top.train_loss:
        return (
            f"Overfitting. {after}, while the training loss fell from {top.train_loss:.4f} to {last.train_loss:.4f}: "
            f"the model learned its text by heart. Take epoch {top.epoch}."
        )
    return (
        f"{after}, and the training loss did not fall either ({top.train_loss:.4f} to {last.train_loss:.4f}): this is "
        f"no overfitting; look at the learning rate and the gradient norm. Take epoch {top.epoch}."
    )


def _fell(epochs: Sequence[EpochResult]) -> str:
    pairs = itertools.pairwise(epochs)
    risen = [str(new.epoch) for old, new in pairs if new.val_loss >= old.val_loss]
    return f"it did not fall in epoch {', '.join(risen)}" if risen else "it fell in every epoch, more may still help"


def _gap_between(first: EpochResult, last: EpochResult) -> str:
    """How the distance between the losses went."""
    begin, end = first.val_loss - first.train_loss, last.val_loss - last.train_loss
    if end <= begin or end <= 0:
        return f"It is {_gap(last)} the training loss (after epoch {first.epoch}: {_gap(first)}): no overfitting."
    return (
        f"Its distance to the training loss grew from {begin:.4f} to {end:.4f}: what is learned by heart grows, "
        "but unseen text still gains."
    )


def _gap(result: EpochResult) -> str:
    gap = result.val_loss - result.train_loss
    return f"{abs(gap):.4f} {'below' if gap < 0 else 'above'}"


POINTS = 300
"""Points of a line over steps; more rows are averaged."""


TRAIN, VALIDATION = 1, 3
"""Series colours, as in the data report."""


def by_epoch(evaluation: Evaluation) -> Markup:
    """Both losses of every epoch's weights."""
    epochs = evaluation.epochs
    numbers = [result.epoch for result in epochs]
    losses = {
        "training": (TRAIN, [result.train_loss for result in epochs]),
        "validation": (VALIDATION, [result.val_loss for result in epochs]),
    }
    return charts.lines(
        [
            charts.Series(values, colour, numbers, [_said(n, name, v) for n, v in zip(numbers, values, strict=True)])
            for name, (colour, values) in losses.items()
        ],
        x_label="epoch",
        y_label="nats per token",
        alt=f"Losses by epoch; the validation loss goes from {epochs[0].val_loss:.4f} to {epochs[-1].val_loss:.4f}.",
    )


def by_step(steps: Sequence[StepRow], history: Sequence[EpochRow]) -> Markup:
    """The training loss while the model learns, and the validation loss at the epochs' ends."""
    x, loss = _thin(steps, lambda row: row.loss)
    ends = [row.val_loss for row in history]
    dots = [_said(row.epoch, "validation", row.val_loss) for row in history]
    return charts.lines(
        [
            charts.Series(loss, TRAIN, x),
            charts.Series(ends, VALIDATION, [row.step for row in history], dots),
        ],
        log="y",
        x_label="step",
        y_label="nats per token, logarithmic",
        alt=f"Training loss by step, from {loss[0]:.4f} to {loss[-1]:.4f}, and validation loss at the epochs' ends.",
    )


def learning_rate(steps: Sequence[StepRow]) -> Markup:
    """The schedule as it was."""
    x, rates = _thin(steps, lambda row: row.learning_rate)
    return _one(x, rates, "learning rate", f"Learning rate by step; at most {max(rates):.4g}.")


def gradient_norm(steps: Sequence[StepRow]) -> Markup:
    """The norm before clipping."""
    x, norms = _thin(steps, lambda row: row.gradient_norm)
    return _one(x, norms, "gradient norm", f"Gradient norm before clipping by step; at most {max(norms):.4g}.")


def _one(x: list[float], values: list[float], y_label: str, alt: str) -> Markup:
    return charts.lines([charts.Series(values, TRAIN, x)], x_label="step", y_label=y_label, alt=alt)


def _thin(steps: Sequence[StepRow], value: Callable[[StepRow], float]) -> tuple[list[float], list[float]]:
    """At most POINTS points: the means of equal shares of the rows, each at the last step of its share."""
    size = -(-len(steps) // POINTS)
    shares = [steps[i : i + size] for i in range(0, len(steps), size)]
    return [share[-1].step for share in shares], [fmean(map(value, share)) for share in shares]


def _said(epoch: int, name: str, loss: float) -> str:
    return f"epoch {epoch}: {name} loss {loss:.4f}"


TEMPLATE = Path(__file__).with_name("run_report.html")


Hash = tuple[str, str, str]
"""What it is of, the hash, an explanation."""


@dataclass(frozen=True)
class Run:
    """All that the page shows."""

    evaluation: Evaluation
    history: Sequence[EpochRow]
    steps: Sequence[StepRow]
    times: Mapping[int, EpochTime]
    """By epoch, as far as they are known."""
    currency: str
    clean: CleanReport
    tokens: TokenMetadata
    manifest: Manifest
    unigram_bits_per_byte: float
    """What knowing only how frequent each token is would give."""
    weights: Sequence[str]
    """The SHA-256 of every epoch's weights."""
    params: Mapping[str, Any]
    """params.yaml but for `runtime`, by section."""


@dataclass(frozen=True)
class Line:
    """An epoch in the table."""

    result: EpochResult
    row: EpochRow
    time: EpochTime | None
    change: Change | None
    """None in the first epoch."""
    is_best: bool


def render_report(run: Run) -> str:
    """The whole page."""
    evaluation, top = run.evaluation, best(run.evaluation)
    lines = _lines(run, top)
    return render(
        TEMPLATE,
        run=run,
        lines=lines,
        first=lines[0].result,
        last=lines[-1].result,
        best=top,
        verdict=verdict(evaluation),
        prompts=prompts(evaluation),
        by_epoch=by_epoch(evaluation),
        by_step=by_step(run.steps, run.history),
        learning_rate=learning_rate(run.steps),
        gradient_norm=gradient_norm(run.steps),
        total=sum((time.spent for time in run.times.values()), Cost()),
        all_tokens=run.tokens.train.tokens + run.tokens.val.tokens,
        steps=data_report.steps(run.clean, run.tokens.train.tokens + run.tokens.val.tokens),
        outcome=data_report.outcome(run.clean),
        dropped=data_report.dropped(run.clean),
        parameters=[
            (name, [(row, value, "") for row, value in flat({name: section})]) for name, section in run.params.items()
        ],
        hashes=_hashes(run),
    )


def prompts(evaluation: Evaluation) -> list[SideBySide]:
    """Every prompt with the answers of all epochs."""
    return [
        side_by_side(question, [(f"epoch {result.epoch}", result.answers[number]) for result in evaluation.epochs])
        for number, question in enumerate(evaluation.questions)
    ]


def _lines(run: Run, top: EpochResult) -> list[Line]:
    epochs = run.evaluation.epochs
    earlier = [None, *epochs[:-1]]
    return [
        Line(
            result,
            row,
            run.times.get(result.epoch),
            change(before, result) if before else None,
            is_best=result is top and len(epochs) > 1,
        )
        for before, result, row in zip(earlier, epochs, run.history, strict=True)
    ]


def _hashes(run: Run) -> list[Hash]:
    """What tells this run from every other, in the order in which it was made."""
    return [
        ("tokenizer", run.tokens.tokenizer_sha256, "SHA-256 of data/tokenizer/tokenizer.json"),
        ("training tokens", run.tokens.train.sha256, "SHA-256 of data/tokens/train.bin"),
        ("validation tokens", run.tokens.val.sha256, "SHA-256 of data/tokens/val.bin"),
        ("training", run.manifest.fingerprint, "fingerprint of model, training and tokens: its folder in .resume"),
        *(
            (f"epoch {number}", sha256, f"SHA-256 of models/gpt/epoch-{number}/model.safetensors")
            for number, sha256 in enumerate(run.weights, start=1)
        ),
    ]
