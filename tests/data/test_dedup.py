import itertools
import tracemalloc
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.data.waves import DOCUMENT, by_sets, divided, judged, judged_with_runs, table
from tokenmill.data.dedup import MERGE_RATIO, Division, Run, add_new, compare, divide, judge

HASH = st.integers(0, 20) | st.integers(0, 2**64 - 1)


def spread(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**64, count, dtype=np.uint64)


@given(st.lists(st.lists(HASH)))
def test_runs_answer_as_a_set(batches):
    runs = []
    reference = set()
    for batch in batches:
        expected = []
        for value in batch:
            expected.append(value not in reference)
            reference.add(value)
        assert add_new(np.array(batch, dtype=np.uint64), runs).tolist() == expected
    assert sum(map(len, runs)) == len(reference)


def test_many_batches_in_few_runs_of_few_bytes_a_hash():
    runs = []
    known = np.zeros(0, dtype=np.uint64)
    for part in np.array_split(spread(300_000), 300):
        batch = np.concatenate([part, known[::50], part[:3]])
        assert (add_new(batch, runs) == (np.arange(len(batch)) < len(part))).all()
        known = np.concatenate([known, part])
        size = sum(run.ordered.nbytes + run._table.nbytes for run in runs)
        assert 9 <= size / len(known) <= 10
        assert len(runs) <= 1 + np.log(len(known) / len(part)) / np.log(MERGE_RATIO)
    assert not add_new(known, runs).any()


@given(st.lists(DOCUMENT, max_size=16), st.booleans(), st.integers(2, 5), st.data())
def test_waves_are_judged_as_by_sets(documents, exact, parts, data):
    """The first of several stays, whatever the waves, the chunks and the parts."""
    unique, kept, held = by_sets(table(documents), exact=exact)
    waves = [
        np.split(wave, divided(data, len(wave)))
        for wave in np.split(table(documents), divided(data, len(documents)))
    ]
    answers = list(judged_with_runs(waves, exact=exact, parts=parts))
    assert np.concatenate([answer.unique for answer, _ in answers]).tolist() == unique.tolist()
    assert np.concatenate([answer.kept for answer, _ in answers]).tolist() == kept.tolist()
    hashes = np.concatenate([run.ordered for run in answers[-1][1]])
    assert sorted(hashes.tolist()) == held


@given(st.lists(DOCUMENT, max_size=16), st.lists(DOCUMENT, max_size=4))
def test_a_comparison_finds_what_the_judge_needs_alone(documents, earlier):
    known = np.unique(table(earlier)[:, 1:])
    parts = divide(Division(3, False, [0]), table(documents))
    found = [compare(part, Run(known)) for part in parts]
    bands = table(documents)[:, 1:].tolist()
    counts = Counter(itertools.chain(*bands))
    several = {band for band, count in counts.items() if count > 1}.difference(known.tolist())
    shared = itertools.chain(*(zip(*one.shared, strict=True) for one in found))
    assert sorted(shared) == sorted(
        (band, row) for row, its in enumerate(bands) for band in its if band in several
    )
    near = [row for row, its in enumerate(bands) if np.isin(its, known).any()]
    assert np.unique(np.concatenate([one.near for one in found])).tolist() == near
    assert all((np.diff(one.near.astype(int)) > 0).all() for one in found)
    assert sum(one.distinct for one in found) == len(counts)


def test_a_run_of_a_part_uses_its_whole_table():
    table = spread(64_000).reshape(-1, 4)
    *_, (_, runs) = judged_with_runs([table], exact=False, parts=16)
    for run in runs:
        assert 1 / 17 < np.unpackbits(run._table).mean() < 1 / 8


def test_a_wave_of_copies_is_judged_in_little_memory():
    keys = np.tile(spread(2000).reshape(-1, 10), (100, 1))
    found = [compare(part) for part in divide(Division(2, False, [0]), keys)]
    tracemalloc.start()
    judge(len(keys), found)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 * keys[:, 1:].size


@given(st.lists(DOCUMENT, max_size=16))
def test_what_is_kept_shares_no_band(documents):
    keys = table(documents)
    (first,) = judged([keys], exact=True)
    (again,) = judged([keys[first.kept]], exact=True)
    assert again.kept.all()
