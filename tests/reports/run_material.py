"""Everything that the stage `report` reads, in a folder, with hostile text wherever a page could
show it."""

import math
import shutil
from pathlib import Path

import polars as pl

from tests.imports import ROOT
from tests.reports.data_material import HOSTILE, REPORT
from tests.tokens.packing import shard_of
from tokenmill.core.files import sha256_of, write_json
from tokenmill.core.params import read_yaml
from tokenmill.evaluation.benchmark_results import (
    BenchmarkResult,
    BenchmarksFile,
    EpochScore,
    Estimate,
)
from tokenmill.evaluation.document_losses import GROUPS, DocumentLoss, loss_by
from tokenmill.evaluation.measured_documents import by_group, write_table
from tokenmill.evaluation.results import Answer, EpochResult, Evaluation, Question
from tokenmill.evaluation.trace import Passage, PromptTrace, Trace, TracedSpan, Traces
from tokenmill.formats.records import write_rows
from tokenmill.formats.token_file import Part, SourceRun, TokenMetadata, write_metadata
from tokenmill.training.history import EpochRow, StepRow

FINGERPRINT = "0123456789abcdef"
# Steps of an epoch, tokens of a step
PER_EPOCH = 20
TOKENS = 2048
LOSSES = [(3.0, 3.5), (2.0, 2.5), (1.25, 2.75)]
"""Training and validation loss: the second epoch is best, the third learns by heart."""
ANSWERS = [
    ["The capital of Spain is Madrid.", f"{HOSTILE} one", "x" * 3000, "loop loop"],
    ["The capital of France is Paris.", f"{HOSTILE} two", "🙂 e\u0301 \u200b", ""],
    ["The capital of France is Paris.", "<ins>", "", "loop loop"],
]
EXPECTED = ["France is Paris", "<b>two</b> two", None, None]


METRICS = {
    "clean": {"documents_read": 150, "documents_kept": 140},
    "tokenizer": {
        "type": "bpe",
        "vocab_size": 400,
        "requested_vocab_size": 400,
        "sample_bytes": 15_000,
        "corpus_too_small": False,
        "bytes_per_token": 2.5,
    },
    "tokens": {
        "train_tokens": 5_000,
        "val_tokens": 1_234,
        "compression_ratio": 6.5,
        "split": "hash",
        "val_fraction": 0.2,
        "split_by": "documents by hash",
    },
}
"""What the stages before leave in metrics/, as far as somebody reads it."""


def evaluation(epochs: int = 3) -> Evaluation:
    """What `evaluate` found: the first prompt becomes right and stays so, nothing is expected of
    the last two."""
    results = []
    for number, ((train_loss, val_loss), texts) in enumerate(
        zip(LOSSES, ANSWERS, strict=True), start=1
    ):
        answers = [
            Answer(
                greedy=text,
                sampled=f"{HOSTILE} sampled {number}",
                found=None if expect is None else expect in text,
                repetition=0.5 if text.startswith("loop") else 0.0,
            )
            for text, expect in zip(texts, EXPECTED, strict=True)
        ]
        results.append(
            EpochResult(
                epoch=number,
                train_loss=train_loss,
                val_loss=val_loss,
                perplexity=1234.5 / number,
                bits_per_byte=val_loss / 2,
                answers=answers,
            )
        )
    prompts = ["What is the capital of France?", f"{HOSTILE} prompt", "", "y" * 500]
    questions = [
        Question(prompt=p, expect=e, left_out="→<") for p, e in zip(prompts, EXPECTED, strict=True)
    ]
    return Evaluation(questions=questions, epochs=results[:epochs])


SOURCE = f"{HOSTILE}.txt"
"""Where all of the text comes from."""


def part_of(tokens: int, documents: int, text_bytes: int, digit: str) -> Part:
    counts = {"tokens": tokens, "documents": documents, "bytes": text_bytes}
    source = SourceRun(source=SOURCE, **counts)
    return Part(**counts, turn_tokens=0, sha256=digit * 64, sources=[source])


def traces() -> Traces:
    """What the stage `trace` found: half of the first answer is one phrase, nothing of the others
    is."""
    passage = Passage(
        source=f"{HOSTILE}.txt",
        document=7,
        before=f"{HOSTILE} ",
        text="The capital of France",
        after=" <b>",
    )
    span = TracedSpan(start=0, stop=21, words=4, count=2, documents=1, passages=[passage])
    first = Trace(text=ANSWERS[-1][0], words=6, copied=4, spans=[span])
    prompts = [PromptTrace(prompt_documents=3, is_known=True, answer=first)]
    for expect, text in zip(EXPECTED[1:], ANSWERS[-1][1:], strict=True):
        none = Trace(text=text, words=1, copied=0, spans=[])
        known = None if expect is None else False
        prompts.append(PromptTrace(prompt_documents=0, is_known=known, answer=none))
    return Traces(
        min_words=4,
        overlap_words=13,
        prompts=prompts,
        validation_documents=10,
        overlapping_documents=1,
        overlaps=[span],
        clean_bits_per_byte=1.625,
    )


def estimate(value: float) -> Estimate:
    return Estimate(value=value, low=value / 2, high=value * 2)


def benchmarks(epochs: int = 3) -> BenchmarksFile:
    """What the stage `benchmark` found: one with choices, one of last words without an index."""
    scores = [
        EpochScore(
            epoch=number,
            by_bytes=estimate(number / 8),
            by_sum=estimate(number / 10),
            bits_per_byte=estimate(4 / number),
            clean=estimate(number / 16),
        )
        for number in range(1, epochs + 1)
    ]
    choices = BenchmarkResult(
        name="arc_easy",
        headline="bytes",
        licence="CC BY-SA 4.0",
        items=500,
        left_out=3,
        cut=7,
        unknown=HOSTILE,
        chance=0.25,
        contaminated=2,
        overlaps=traces().overlaps,
        epochs=scores,
    )
    unknown = {"clean": None, "by_sum": estimate(0.4)}
    words = choices.model_copy(
        update={
            "name": "mine",
            "headline": "sum",
            "licence": None,
            "left_out": 0,
            "cut": 0,
            "unknown": "",
            "chance": None,
            "contaminated": None,
            "overlaps": [],
            "epochs": [score.model_copy(update=unknown) for score in scores],
        }
    )
    return BenchmarksFile(overlap_words=13, results=[choices, words])


def documents(
    epochs: int, sources: tuple[str, ...] = (HOSTILE, "b"), languages: tuple[str, ...] = ("en",)
) -> pl.DataFrame:
    """The losses of six validation documents, whose bits are as many as their bytes at the last
    epoch."""
    rows = [
        DocumentLoss(
            epoch=epoch,
            document=number + 1,
            source=sources[number % 3 % len(sources)],
            language=languages[number % len(languages)],
            tokens=50,
            bytes=100 * (number + 1),
            loss=100 * (number + 1) * math.log(2) * (1 + epochs - epoch),
        )
        for epoch in range(1, epochs + 1)
        for number in range(6)
    ]
    return pl.DataFrame(rows)


def write_groups(folder: Path, table: pl.DataFrame) -> None:
    """Write the losses by source and by language of these documents."""
    for group in GROUPS:
        write_table(folder / loss_by(group), by_group(table, group))


def prepare(folder: Path, epochs: int = 3) -> Path:
    """Write all of it."""
    metrics = folder / "metrics"
    write_json(folder / "reports/evaluation.json", evaluation(epochs).model_dump())
    write_json(folder / "reports/answer_traces.json", {"traces": traces().model_dump()})
    benchmarks = BenchmarksFile(overlap_words=13, results=[])
    write_json(folder / "reports/benchmarks.json", benchmarks.model_dump())
    write_groups(folder, documents(epochs))
    write_json(folder / "data/clean_report.json", REPORT)
    shard = shard_of(
        train=part_of(PER_EPOCH * TOKENS + 1, 130, 14_000, "a"),
        val=part_of(1_234, 10, 1_000, "b"),
    )
    metadata = TokenMetadata.of(
        [shard], vocab_size=400, eot_id=0, tokenizer_type="bpe", tokenizer_sha256="c" * 64
    )
    write_metadata(folder / "data/packed", metadata)
    for name, numbers in METRICS.items():
        write_json(metrics / f"{name}.json", numbers)
    write_json(metrics / "data.json", {"unigram_bits_per_byte": 2.125})
    params = read_yaml(ROOT / "params.yaml")
    shutil.copyfile(ROOT / "params.yaml", folder / "params.yaml")
    manifest = {
        "format_version": 1,
        "fingerprint": FINGERPRINT,
        "parameters": 123_456,
        "epochs": epochs,
    }
    manifest |= {
        "model": {k: v for k, v in params["model"].items() if k != "start_from"}
        | {"vocab_size": 400},
        "train": params["train"] | {"batch_size": 16},
        "tokenizer_sha256": "c" * 64,
    }
    hashes = []
    for number in range(1, epochs + 1):
        weights = folder / f"models/gpt/epoch-{number}/model.safetensors"
        weights.parent.mkdir(parents=True)
        weights.write_bytes(f"weights {number}".encode())
        hashes.append(sha256_of(weights))
    write_json(folder / "models/gpt/manifest.json", manifest | {"weights": hashes})
    write_history(metrics, epochs)
    return folder


def write_history(metrics: Path, epochs: int) -> None:
    """history.csv and steps.csv."""
    history = [
        EpochRow(
            n, n * PER_EPOCH, n * PER_EPOCH * TOKENS, 0.01, 4.0 / n, LOSSES[n - 1][1], 9.0, 1.0
        )
        for n in range(1, epochs + 1)
    ]
    write_rows(metrics / "history.csv", EpochRow, history)
    steps = [
        StepRow(s, s / PER_EPOCH, 5.0 / s, 0.01, 1.5) for s in range(5, epochs * PER_EPOCH + 1, 5)
    ]
    write_rows(metrics / "steps.csv", StepRow, steps)


def write_timing(
    folder: Path, *, epochs: int, after: int = 0, fingerprint: str = FINGERPRINT, money: bool = True
) -> None:
    """Times of a run from the step `after` on: step s at s * s / 10 seconds, 1000 + s tokens a
    second, a cent a second."""
    rows = [
        f"{s},{s * s / 10:.3f},{1000 + s},,{s * s / 1000 if money else ''},USD"
        for s in range(after + 5, epochs * PER_EPOCH + 1, 5)
    ]
    path = folder / f".resume/{fingerprint}/timing.csv"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(["step,seconds,tokens_per_second,units,money,currency", *rows, ""]))
