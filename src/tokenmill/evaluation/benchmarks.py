"""Measure every epoch on benchmarks: the log-probability of each choice given its context.

As OLMES does (Gu et al. 2024, section 3) in its cloze form: the model never sees the choices
together, and the one with the highest log-probability is its answer. Each context begins as a
document does in training, behind an end-of-text. Context and choice are encoded apart.

Axes: R choices of all items, B of them in a batch, T positions, M positions whose token counts, V
vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from tokenmill.core.errors import UserError
from tokenmill.evaluation.benchmark_items import (
    OFFERED,
    BenchmarksParams,
    Item,
    benchmark_file,
    headline,
    read_items,
)
from tokenmill.evaluation.benchmark_results import (
    BenchmarkResult,
    BenchmarksFile,
    EpochScore,
    Estimate,
    estimates,
)
from tokenmill.evaluation.trace import Tracer
from tokenmill.formats.measured import evenly_spread
from tokenmill.formats.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.model.device import Compute, DeviceName, prepare_to_measure
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import load_model
from tokenmill.model.manifest import read_manifest
from tokenmill.model.ops import IGNORED, LOGITS_AT_A_TIME
from tokenmill.model.sequences import by_parts
from tokenmill.progress import Progress


@dataclass(frozen=True)
class Questions:
    """The items of one benchmark that a model can be asked, as tokens."""

    items: list[Item]
    rows: list[list[int]]
    """For each choice of each item, the tokens that end with the choice; at most one more than the
    context of the model has, because the last one is only predicted."""
    lengths: np.ndarray
    """The number of tokens of each choice; (R,) int64."""
    left_out: int
    cut: int
    unknown: str

    @property
    def chance(self) -> float | None:
        """See `BenchmarkResult.chance`."""
        counts = [len(item.choices) for item in self.items]
        return float(np.mean([1 / count if count > 1 else 0.0 for count in counts])) or None


def as_questions(
    items: Sequence[Item], tokenizer: TextTokenizer, *, context_length: int
) -> Questions:
    """Encode items. Characters of contexts that the tokenizer does not know are left out, and what
    does not fit the model's context is cut at the left."""
    kept = list[Item]()
    rows = list[list[int]]()
    lengths = list[int]()
    unknown = set[str]()
    cut = 0
    for item in items:
        choices = [
            [] if tokenizer.unknown(text) else tokenizer.encode(text) for text in item.choices
        ]
        if not all(0 < len(ids) <= context_length for ids in choices):
            continue
        contexts = {text: tokenizer.encode(tokenizer.known(text)) for text in item.contexts}
        unknown.update(*map(tokenizer.unknown, contexts))
        whole = [
            [tokenizer.eot_id, *contexts[text], *ids]
            for text, ids in zip(item.contexts, choices, strict=True)
        ]
        cut += any(len(ids) > context_length + 1 for ids in whole)
        rows += [ids[-context_length - 1 :] for ids in whole]
        lengths += [len(ids) for ids in choices]
        kept.append(item)
    return Questions(
        items=kept,
        rows=rows,
        lengths=np.array(lengths, dtype=np.int64),
        left_out=len(items) - len(kept),
        cut=cut,
        unknown="".join(sorted(unknown)),
    )


def log_probabilities(
    model: GPT, questions: Questions, compute: Compute
) -> tuple[np.ndarray, np.ndarray]:
    """The log-probability of each choice given its context, in nats, (R,) float64; and whether each
    of its tokens is the likeliest one, (R,) bool."""
    sums = np.zeros(len(questions.rows))
    greedy = np.zeros(len(questions.rows), dtype=np.bool_)
    for batch in _batches(questions.rows, LOGITS_AT_A_TIME // model.config.vocab_size):
        scored = by_parts(
            batch, lambda part: _scored(model, questions, part, compute), micro_batch=len(batch)
        )
        sums[batch], greedy[batch] = map(np.concatenate, zip(*scored, strict=True))
    return sums, greedy


def _batches(rows: Sequence[Sequence[int]], tokens: int) -> Iterator[np.ndarray]:
    """The numbers of rows that go through the model together: those of about one length, with at
    most so many tokens in all; the longest first, so that memory runs out at once or not."""
    lengths = np.array([len(ids) for ids in rows])
    order = np.argsort(lengths, kind="stable")
    while len(order):
        most = max(tokens // int(lengths[order[-1]]), 1)
        yield order[-most:]
        order = order[:-most]


@torch.inference_mode()
def _scored(
    model: GPT, questions: Questions, batch: np.ndarray, compute: Compute
) -> tuple[np.ndarray, np.ndarray]:
    """`log_probabilities` of a batch. What fills up shorter rows stands behind them, so no position
    that counts sees it."""
    rows = [questions.rows[number] for number in batch]
    longest = max(map(len, rows)) - 1
    ids_BT = np.zeros((len(rows), longest), dtype=np.int64)
    targets_BT = np.full((len(rows), longest), IGNORED, dtype=np.int64)
    for row, (ids, length) in enumerate(zip(rows, questions.lengths[batch], strict=True)):
        ids_BT[row, : len(ids) - 1] = ids[:-1]
        targets_BT[row, len(ids) - 1 - length : len(ids) - 1] = ids[-length:]
    counts_BT = targets_BT != IGNORED
    targets_M = torch.from_numpy(targets_BT[counts_BT]).to(compute.device)
    with compute.autocast():
        logits_BTV = model(torch.from_numpy(ids_BT).to(compute.device))
    logits_MV = logits_BTV[torch.from_numpy(counts_BT).to(compute.device)].float()
    losses_M = F.cross_entropy(logits_MV, targets_M, reduction="none").cpu().double().numpy()
    wrong_M = (logits_MV.argmax(-1) != targets_M).cpu().numpy()
    owner_M = np.repeat(np.arange(len(rows)), questions.lengths[batch])
    sums = -np.bincount(owner_M, losses_M, minlength=len(rows))
    return sums, np.bincount(owner_M, wrong_M, minlength=len(rows)) == 0


def marks(questions: Questions, sums: np.ndarray, greedy: np.ndarray) -> np.ndarray:
    """For each item: whether its right choice wins by bytes and by the sum, as 0 or 1, and its bits
    per byte; (items, 3) float64.

    Args:
        questions: the items.
        sums: the log-probability of each choice, (R,).
        greedy: whether it is the likeliest continuation, (R,).
    """
    found = []
    first = 0
    for item in questions.items:
        choices = slice(first, first + len(item.choices))
        first = choices.stop
        by_bytes = sums[choices] / [len(text.encode()) for text in item.choices]
        if len(item.choices) == 1:
            wins = [greedy[choices.start]] * 2
        else:  # of equal ones the first
            wins = [values.argmax() == item.gold for values in (by_bytes, sums[choices])]
        found.append([*wins, -by_bytes[item.gold] / np.log(2)])
    return np.array(found, dtype=np.float64)


def run_benchmarks(
    params: BenchmarksParams,
    *,
    models: Path,
    tokenizer_file: Path,
    device: DeviceName,
    tracer: Tracer | None,
    overlap_words: int,
) -> BenchmarksFile:
    """Measure every epoch in the folder `models`.

    Args:
        params: which benchmarks, and how many items of each.
        models: the epochs and their manifest.
        tokenizer_file: the tokenizer of the models.
        device: where they run.
        tracer: finds contaminated items; None if the training text has no index.
        overlap_words: words in a row by which an item counts as contaminated.
    """
    manifest = read_manifest(models)
    tokenizer = read_tokenizer(tokenizer_file)
    manifest.check_tokenizer(tokenizer.sha256, str(tokenizer_file))
    compute = prepare_to_measure(device, manifest.train.precision)
    length = manifest.model.context_length
    asked = {
        name: _asked(name, params.items, tokenizer, context_length=length) for name in params.names
    }
    found = {name: list[np.ndarray]() for name in asked}
    with Progress("benchmark", manifest.epochs * len(asked), "measurement") as progress:
        for epoch in range(1, manifest.epochs + 1):
            model = load_model(models / f"epoch-{epoch}", str(compute.device))
            for name, questions in asked.items():
                scores = log_probabilities(model, questions, compute)
                found[name].append(marks(questions, *scores))
                progress.advance(1)
    results = [
        _result(name, questions, found[name], tracer, overlap_words)
        for name, questions in asked.items()
    ]
    return BenchmarksFile(overlap_words=overlap_words, results=results)


def _asked(name: str, most: int, tokenizer: TextTokenizer, *, context_length: int) -> Questions:
    every = read_items(name)
    items = [every[number] for number in evenly_spread(len(every), most)]
    questions = as_questions(items, tokenizer, context_length=context_length)
    if not questions.items:
        raise UserError(
            f"{benchmark_file(name)}: the model can be asked none of {len(items)} items, because a "
            f"choice has more tokens than model.context_length ({context_length}) or characters "
            f"without a token; take {name} out of benchmarks.names."
        )
    return questions


def _result(
    name: str,
    questions: Questions,
    found: Sequence[np.ndarray],
    tracer: Tracer | None,
    overlap_words: int,
) -> BenchmarkResult:
    right = [item.right for item in questions.items]
    is_shared, overlaps = tracer.shared(right, overlap_words) if tracer else (None, [])
    every = estimates(np.concatenate(found, axis=1))
    column = 0 if headline(name) == "bytes" else 1
    clean = list[Estimate | None]([None] * len(found))
    if is_shared is not None and 0 < is_shared.sum() < len(is_shared):
        own = [one[~is_shared, column] for one in found]
        clean = list[Estimate | None](estimates(np.stack(own, axis=1)))
    return BenchmarkResult(
        name=name,
        headline=headline(name),
        licence=OFFERED[name].licence if name in OFFERED else None,
        items=len(questions.items),
        left_out=questions.left_out,
        cut=questions.cut,
        unknown=questions.unknown,
        chance=questions.chance,
        contaminated=None if is_shared is None else int(is_shared.sum()),
        overlaps=overlaps,
        epochs=[
            EpochScore(epoch=epoch, by_bytes=by_bytes, by_sum=by_sum, bits_per_byte=bits, clean=own)
            for epoch, (by_bytes, by_sum, bits, own) in enumerate(
                zip(every[::3], every[1::3], every[2::3], clean, strict=True), start=1
            )
        ],
    )
