"""Draw text evenly over a corpus of any size, the same text every time.

`sample` reads the whole corpus once and keeps every so many-th document: for learning. `probe` reads a few
documents at even places without reading the rest: for checking.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from tokenmill.documents import dataset
from tokenmill.tokenization import reading
from tokenmill.tokenization.segments import cut

UNIT_CHARS = 4096
"""Longer documents count as several, so that one long text is sampled over its whole length, too."""

PROBES = 16
"""Places in the corpus that `probe` looks at."""
PROBE_ROWS = 64
"""Documents that `probe` looks at in each place, at most."""


def sample(clean: Path, budget: int) -> Iterator[list[str]]:
    """Yield lists of texts, at most `budget` UTF-8 bytes in all, drawn evenly over the corpus.

    The share budget / corpus of all documents is taken, at even distances; documents over UNIT_CHARS are cut
    into several first. A corpus within the budget is yielded whole.
    """
    rate = min(1.0, budget / max(1, dataset.totals(clean).bytes))
    seen, left = 0, budget
    for frame in reading.batches(clean):
        units = _units(frame["text"])
        marks = np.floor(np.arange(seen - 1, seen + len(units)) * rate)  # the first document is always taken
        seen += len(units)
        chosen = _fitting(units.gather(np.flatnonzero(np.diff(marks))), left)
        left -= sum(len(text.encode()) for text in chosen)
        if chosen:
            yield chosen
        if left <= 0:
            return


def _units(texts: pl.Series) -> pl.Series:
    """The texts, those over UNIT_CHARS in pieces."""
    if (texts.str.len_chars() <= UNIT_CHARS).all():
        return texts
    return pl.Series([piece for text in texts.to_list() for piece in cut(text, UNIT_CHARS)], dtype=pl.String)


def _fitting(texts: pl.Series, budget: int) -> list[str]:
    """The first texts that fit into `budget` bytes; the one that crosses it is cut."""
    ends = texts.str.len_bytes().cum_sum().to_numpy()
    fitting = int(np.searchsorted(ends, budget, side="right"))
    kept = texts.head(fitting).to_list()
    rest = budget - (int(ends[fitting - 1]) if fitting else 0)
    if fitting < len(texts) and (last := texts[fitting].encode()[:rest].decode(errors="ignore")):
        kept.append(last)
    return kept


def probe(clean: Path, budget: int) -> list[str]:
    """Texts from even places of the corpus, about `budget` characters in all at most."""
    shards = dataset.shards(clean)
    places = sorted({i * len(shards) // PROBES for i in range(PROBES)})
    texts: list[str] = []
    for place in places:
        documents = dataset.count(shards[place])
        starts = sorted({i * documents * len(places) // PROBES for i in range(PROBES // len(places))})
        for start in starts:
            excerpt = dataset.excerpt(shards[place], start, PROBE_ROWS)
            texts += _first(excerpt, budget // (len(places) * len(starts)))
    return texts


def _first(texts: Iterable[str], budget: int) -> list[str]:
    """The first `budget` characters of `texts`."""
    kept = []
    for text in texts:
        if budget <= 0:
            break
        kept.append(text[:budget])
        budget -= len(text)
    return kept
