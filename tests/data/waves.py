"""Judge documents by their keys, wave by wave."""

from collections.abc import Iterator, Sequence

import numpy as np

from tokenmill.data.dedup import Division, Run, Verdict, compare, divide, grown, judge


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
