import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.data.dedup import MERGE_RATIO, SeenHashes

HASH = st.integers(0, 20) | st.integers(0, 2**64 - 1)


def spread(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**64, count, dtype=np.uint64)


@given(st.lists(st.lists(HASH)))
def test_seen_hashes_answer_as_a_set(batches):
    seen = SeenHashes()
    reference = set()
    for batch in batches:
        expected = []
        for value in batch:
            expected.append(value not in reference)
            reference.add(value)
        assert seen.add(np.array(batch, dtype=np.uint64)).tolist() == expected
    assert sum(map(len, seen._runs)) == len(reference)


def test_many_batches_in_few_runs_of_few_bytes_a_hash():
    seen = SeenHashes()
    known = np.zeros(0, dtype=np.uint64)
    for part in np.array_split(spread(300_000), 300):
        batch = np.concatenate([part, known[::50], part[:3]])
        assert (seen.add(batch) == (np.arange(len(batch)) < len(part))).all()
        known = np.concatenate([known, part])
        size = sum(run.ordered.nbytes + run._table.nbytes for run in seen._runs)
        assert 9 <= size / len(known) <= 10
        assert len(seen._runs) <= 1 + np.log(len(known) / len(part)) / np.log(MERGE_RATIO)
    assert not seen.add(known).any()
