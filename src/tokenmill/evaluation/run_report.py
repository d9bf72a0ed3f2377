"""reports/index.html: a whole run on one page, from the raw text to the last epoch's answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.describe import funnel
from tokenmill.describe.clean_report import CleanReport
from tokenmill.evaluation import loss_curves
from tokenmill.evaluation.results import EpochResult, Evaluation
from tokenmill.evaluation.run_times import EpochTime
from tokenmill.evaluation.side_by_side import SideBySide, side_by_side
from tokenmill.evaluation.trend import Change, best, change, verdict
from tokenmill.page.page import render
from tokenmill.page.parameters import flat
from tokenmill.tokenization.metadata import TokenMetadata
from tokenmill.training.cost import Spent
from tokenmill.training.history import EpochRow, StepRow
from tokenmill.training.manifest import Manifest

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
        by_epoch=loss_curves.by_epoch(evaluation),
        by_step=loss_curves.by_step(run.steps, run.history),
        learning_rate=loss_curves.learning_rate(run.steps),
        gradient_norm=loss_curves.gradient_norm(run.steps),
        total=sum((time.spent for time in run.times.values()), Spent()),
        all_tokens=run.tokens.train.tokens + run.tokens.val.tokens,
        steps=funnel.steps(run.clean, run.tokens.train.tokens + run.tokens.val.tokens),
        outcome=funnel.outcome(run.clean),
        dropped=funnel.dropped(run.clean),
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
