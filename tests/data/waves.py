"""Judge documents by their keys, wave by wave."""

from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import strategies as st

from tokenmill.data.dedup import Division, Run, Verdict, compare, divide, grown, judge

DOCUMENT = st.tuples(st.integers(0, 9), st.integers(10, 24), st.integers(10, 24))
"""The text and two bands of a document, as numbers. Both bands may be the same."""


def table(documents: Sequence[Sequence[int]]) -> np.ndarray:
    """The numbers as keys over the whole range, shape (documents, 3)."""
    spread = np.uint64(0x9E3779B97F4A7C15)
    return np.array(documents, dtype=np.uint64).reshape(-1, 3) * spread


def divided(data: st.DataObject, rows: int) -> list[int]:
    """Where to cut so many rows into up to seven pieces, some of them empty."""
    return sorted(data.draw(st.lists(st.integers(0, rows), max_size=6)))


def by_sets(keys: np.ndarray, *, exact: bool) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Whether each document has a new text, and whether it is kept; and the keys that are then
    held. The first of several stays."""
    unique, kept = [], []
    texts, bands = set(), set()
    for text, *its in keys.tolist():
        unique.append(not (exact and text in texts))
        kept.append(unique[-1] and bands.isdisjoint(its))
        texts.add(text)
        if kept[-1]:
            bands.update(its)
    held = bands | texts if exact else bands
    return np.array(unique, dtype=bool), np.array(kept, dtype=bool), sorted(held)


def judged(
    waves: Sequence[np.ndarray | Sequence[np.ndarray]], *, exact: bool, parts: int = 2
) -> list[Verdict]:
    """The verdict on each wave, which is the keys of a chunk or of several."""
    return [verdict for verdict, _ in judged_with_runs(waves, exact=exact, parts=parts)]


def judged_with_runs(
    waves: Sequence[np.ndarray | Sequence[np.ndarray]], *, exact: bool, parts: int
) -> Iterator[tuple[Verdict, list[Run]]]:
    """The same, with the keys of the documents kept so far, a run for each part."""
    runs: list[Run] | None = None
    for wave in waves:
        chunks = [wave] if isinstance(wave, np.ndarray) else wave
        starts = np.cumsum([0, *map(len, chunks)]).tolist()
        divided = [
            divide(Division(parts, exact, [start]), chunk)
            for start, chunk in zip(starts, chunks, strict=False)
        ]
        ranges = list(zip(*divided, strict=True))
        earlier = [[run] for run in runs] if runs else [[]] * parts
        found = [compare(*some, *old) for some, old in zip(ranges, earlier, strict=True)]
        verdict = judge(starts[-1], found)
        runs = [
            grown(verdict.bits(), *some, *old) for some, old in zip(ranges, earlier, strict=True)
        ]
        yield verdict, runs
