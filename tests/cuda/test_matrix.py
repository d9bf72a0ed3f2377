"""A training step, a validation, and a checkpoint there and back trace on CUDA, in every
combination, without a GPU."""

from pathlib import Path

import pytest

from tests.cuda import fake
from tests.cuda.matrix import COMBINATIONS, PLACES

pytestmark = pytest.mark.skipif(fake.COMPILER is None, reason="the shim needs g++")


@pytest.mark.slow
def test_every_combination_traces_without_a_wait(shim: Path):
    """One process for all of them, because it takes seconds to start."""
    rows = fake.printed("-m", "tests.cuda.matrix", str(shim))
    found = {row.pop("combination"): row for row in rows}
    waits = ["copy cpu -> cuda, (3,)", "copy cuda -> cpu, (3,)", "value"]
    assert found.pop("control") == {"waits": waits}, "what waits would not be seen"
    nothing = {place: {"waits": []} for place in PLACES}
    assert found == dict.fromkeys(COMBINATIONS, nothing)
