"""The benchmark of `tokenmill fit`: what is proposed for a text is trained, and said with its
loss."""

import json
import random
from pathlib import Path

import pytest

from tests.bench.conftest import Bench
from tokenmill.planning import benchmark


@pytest.mark.slow
@pytest.mark.usefixtures("forked_jobs")
def test_a_proposal_is_trained_for_the_time_that_it_has(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(benchmark, "MEASURED_SECONDS", 0.0)
    text, file = tmp_path / "text.txt", tmp_path / "rows.json"
    draws = random.Random(0)
    words = ["".join(draws.choices("aeinorst", k=draws.randint(2, 7))) for _ in range(300)]
    lines = (" ".join(draws.choices(words, k=9)).capitalize() + "." for _ in range(200))
    text.write_text("\n\n".join(lines))
    said = bench("fit", text, "--minutes", "1", "--alone", "--json", file)
    (row,) = json.loads(file.read_text())
    assert row["candidate"] == "proposed"
    assert row["promised"] <= 60
    assert 1 < row["bits_per_byte"] < 8
    assert f"{row['bits_per_byte']:.4f}" in said
