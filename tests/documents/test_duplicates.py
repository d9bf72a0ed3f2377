import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.documents.duplicates import SeenHashes, collision_odds

HASH = st.integers(0, 20) | st.integers(0, 2**64 - 1)


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


def test_eight_bytes_a_document_in_few_runs():
    seen = SeenHashes()
    values = np.random.default_rng(0).permutation(200_000).astype(np.uint64)
    for part in np.array_split(values, 500):
        assert seen.add(part).all()
    assert not seen.add(values[::7]).any()
    assert len(seen._runs) < 20
    assert sum(run.nbytes for run in seen._runs) == 8 * 200_000


def test_the_odds_in_the_docstring():
    assert 2e-6 < collision_odds(10**7) < 4e-6
    assert 0.02 < collision_odds(10**9) < 0.04
