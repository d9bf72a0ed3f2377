"""Triton compiles every kernel of a training step for the GPUs that people rent or are lent."""

import importlib.util
import itertools
from operator import itemgetter
from pathlib import Path

import pytest

from tests.cuda import fake

MOST_REGISTERS = 168
"""A thread has at most 255. Blocks of 12 warps of so many fill a multiprocessor's 65,536."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(fake.COMPILER is None, reason="the shim needs g++"),
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None,
        reason="compiles for GPUs for minutes; `pip install -e '.[kernels]'` brings it",
    ),
]


def test_every_kernel_of_a_step_compiles_and_spills_nothing(shim: Path, tmp_path: Path):
    rows = fake.printed(
        "-m",
        "tests.cuda.kernels",
        str(shim),
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
        TRITON_CACHE_DIR=str(tmp_path / "triton"),
        TRITON_DUMP_PTXAS_LOG="1",
    )
    for card, architecture in itertools.product(("H100", "A100", "T4"), ("gpt2", "modern")):
        of_step = [
            row for row in rows if (row["card"], row["architecture"]) == (card, architecture)
        ]
        assert len(of_step) > 20, "a step has many kernels"
    for row in rows:
        for best in sorted(row["configurations"], key=itemgetter("spilled", "registers"))[:1]:
            assert best["spilled"] == 0, row
            assert best["registers"] <= MOST_REGISTERS, row
    assert sum(bool(row["configurations"]) for row in rows) > 100, "ptxas says what it does"
