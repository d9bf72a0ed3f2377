import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.data import dedup
from tokenmill.data.dedup import SeenHashes, collision_odds

HASH = st.integers(0, 20) | st.integers(0, 2**64 - 1)


def spread(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**64, count, dtype=np.uint64)


@given(st.lists(st.lists(HASH)))
def test_it_answers_as_a_set_does(batches):
    seen, reference = SeenHashes(), set()
    for batch in batches:
        expected = []
        for value in batch:
            expected.append(value not in reference)
            reference.add(value)
        assert seen.add(np.array(batch, dtype=np.uint64)).tolist() == expected
        assert len(seen) == len(reference)


@pytest.mark.parametrize("values", [spread(300_000), np.random.default_rng(0).permutation(60_000).astype(np.uint64)])
def test_many_batches_with_runs_of_every_size(values, monkeypatch):
    """Numbers spread evenly, and small ones, for which the filter is of no use."""
    monkeypatch.setattr(dedup, "RUN_HASHES", 20_000)
    seen, known = SeenHashes(), np.zeros(0, dtype=np.uint64)
    for part in np.array_split(values, 300):
        batch = np.concatenate([part, known[::50], part[:3]])
        expected = np.arange(len(batch)) < len(part)
        assert (seen.add(batch) == expected).all()
        known = np.concatenate([known, part])
    assert len(seen) == len(values)
    assert not seen.add(values).any()


def test_ten_to_twelve_bytes_a_hash_in_few_runs():
    seen = SeenHashes()
    for part in np.array_split(spread(1_500_000), 300):
        assert seen.add(part).all()
        held = sum(run.nbytes for run in seen._runs) + seen._filter._words.nbytes
        assert len(seen) < 1 << 16 or 10 * len(seen) <= held <= 12.1 * len(seen)
    assert len(seen._runs) < 25


def test_the_filter_rarely_sends_a_new_hash_on():
    seen, values = SeenHashes(), spread(1 << 21)
    seen.add(values[: 1 << 20])
    assert seen._filter.perhaps(values[: 1 << 20]).all()
    assert 0 < seen._filter.perhaps(values[1 << 20 :]).mean() < 0.0035


def test_the_odds_in_the_docstring():
    assert 2e-6 < collision_odds(10**7) < 4e-6
    assert 0.02 < collision_odds(10**9) < 0.04
