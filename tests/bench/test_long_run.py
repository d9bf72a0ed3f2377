"""The benchmark of what a long training keeps, in a short one."""

import importlib.util
import json
from pathlib import Path

import pytest

from bench.training import long_run
from tests.bench.conftest import Bench


@pytest.mark.slow
def test_a_long_run_leaves_what_was_asked_for(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(long_run, "SECONDS_BETWEEN_SAMPLES", 0.01)
    bench("training.long_run", "--epochs", "1", "--json", "rows.json")
    assert len(json.loads(Path("rows.json").read_text())) > 4
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]


def test_a_picture_needs_matplotlib_before_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SystemExit):
        bench("training.long_run", "--picture", "picture.svg")
    assert "--picture needs matplotlib: pip install matplotlib" in capsys.readouterr().err
