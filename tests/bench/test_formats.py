"""The comparison of the formats of `export`, of models of next to nothing."""

from typing import get_args

import pytest

from bench import formats
from tests.bench.conftest import Bench
from tokenmill.model.config import Architecture


def test_transformers_is_compared_without_a_question(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(formats, "SIZES", {"tiny": (1, 2, 16, 64, 300)})
    rows = [line.split(" | ") for line in bench("formats").splitlines()]
    compared = [row for row in rows if row[1] == "hf, transformers"]
    assert [row[0] for row in compared] == [f"| {name}, tiny" for name in get_args(Architecture)]
    assert all(float(row[2]) < 1e-3 for row in compared)
