"""The benchmark of writing runs, and compares what both write."""

import json
from pathlib import Path
from typing import get_args

import pytest

from tests.bench.conftest import Bench
from tokenmill.model.config import Architecture


@pytest.mark.slow
def test_writing_is_measured_beside_transformers(bench: Bench, tmp_path: Path):
    printed = bench("generate", "--tiny", "--json", tmp_path / "g.json")
    rows = json.loads((tmp_path / "g.json").read_text())
    assert [(row["model"], row["texts"], row["tokens"]) for row in rows] == [
        (f"{architecture}, tiny", texts, tokens)
        for architecture in get_args(Architecture)
        for texts in (1, 16)
        for tokens in ("likeliest", "drawn")
    ]
    assert all(row["transformers"] > 0 < row["TokenMill"] for row in rows)
    assert printed.count("\n") == 2 + len(rows)
