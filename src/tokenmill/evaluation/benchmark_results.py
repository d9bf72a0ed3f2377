"""The results of benchmarks: `reports/benchmarks.json`, which reports read, with intervals by the
bootstrap."""

from dataclasses import dataclass

import numpy as np

from tokenmill.core.params import Section
from tokenmill.evaluation.benchmark_items import Normalisation
from tokenmill.evaluation.trace import TracedSpan
from tokenmill.formats.records import rounded

RESAMPLES = 1_000
"""The number of samples that the bootstrap draws."""

DRAWN_TOGETHER = 100
"""The number of them whose counts are in memory at the same time."""


class Estimate(Section):
    """A mean over items."""

    value: float
    low: float
    """Where its interval of 95 % begins: the percentile bootstrap over items (Efron 1979), with a
    fixed seed."""
    high: float
    """Where it ends."""


class EpochScore(Section):
    """What the weights of one epoch reach."""

    epoch: int
    by_bytes: Estimate
    """The share of items whose right choice has the highest log-probability for each of its UTF-8
    bytes. Of an item with a single choice: whether it is the likeliest continuation, token by
    token."""
    by_sum: Estimate
    """The same by the log-probability of the whole choice."""
    bits_per_byte: Estimate
    """The mean of -log2 p / bytes of the right choice, given its context."""
    clean: Estimate | None
    """The accuracy that counts, on the items that are not contaminated; None if all of them are, or
    none, or if that is unknown."""


class BenchmarkResult(Section):
    """What every epoch reaches on one benchmark."""

    name: str
    headline: Normalisation
    """The accuracy that counts."""
    licence: str | None
    """That of its data; None for a user's own."""
    items: int
    """The items that were asked."""
    left_out: int
    """Items that were not: a choice has characters without a token, or does not fit the context."""
    cut: int
    """Items whose context was cut at its left, because it does not fit the model's."""
    unknown: str
    """The characters of contexts that the tokenizer does not know and that were left out."""
    chance: float | None
    """The accuracy of a blind guess: the mean of one by the number of choices; None if the items
    have a single one."""
    contaminated: int | None
    """Items whose context and right choice share a passage with the training text; None if that has
    no index."""
    overlaps: list[TracedSpan]
    """The longest of these passages."""
    epochs: list[EpochScore]

    def accuracy(self, score: EpochScore) -> Estimate:
        """The accuracy that counts."""
        return score.by_bytes if self.headline == "bytes" else score.by_sum


@dataclass(frozen=True)
class BenchmarkRow:
    """What an epoch reaches on a benchmark; a row of `metrics/benchmarks.csv`."""

    epoch: int
    benchmark: str
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    chance: float | None
    bits_per_byte: float
    bits_per_byte_low: float
    bits_per_byte_high: float
    items: int
    contaminated: int | None


class BenchmarksFile(Section):
    """The contents of `reports/benchmarks.json`."""

    overlap_words: int
    """The number of words in a row that make a passage."""
    results: list[BenchmarkResult]

    def metrics(self, epoch: int) -> dict[str, dict[str, float]]:
        """The contents of `metrics/benchmarks.json` for an epoch, counted from 1."""
        return {
            result.name: {
                "accuracy": rounded(result.accuracy(score).value),
                "bits_per_byte": rounded(score.bits_per_byte.value),
            }
            for result in self.results
            for score in result.epochs
            if score.epoch == epoch
        }

    def rows(self) -> list[BenchmarkRow]:
        """A row for each epoch of each benchmark."""
        return [
            BenchmarkRow(
                epoch=score.epoch,
                benchmark=result.name,
                accuracy=result.accuracy(score).value,
                accuracy_low=result.accuracy(score).low,
                accuracy_high=result.accuracy(score).high,
                chance=result.chance,
                bits_per_byte=score.bits_per_byte.value,
                bits_per_byte_low=score.bits_per_byte.low,
                bits_per_byte_high=score.bits_per_byte.high,
                items=result.items,
                contaminated=result.contaminated,
            )
            for result in self.results
            for score in result.epochs
        ]


def estimates(values: np.ndarray) -> list[Estimate]:
    """The mean of each column with its interval. All columns have the same samples drawn.

    Args:
        values: one row for each item; (items, columns).
    """
    draw = np.random.default_rng(0)
    count = len(values)
    means = [
        draw.multinomial(count, np.full(count, 1 / count), size=DRAWN_TOGETHER) @ values / count
        for _ in range(RESAMPLES // DRAWN_TOGETHER)
    ]
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975], axis=0)
    columns = zip(values.mean(axis=0).tolist(), low.tolist(), high.tolist(), strict=True)
    return [Estimate(value=value, low=low, high=high) for value, low, high in columns]
