"""The benchmark of what a long training keeps, before it begins."""

import importlib.util

import pytest

from tests.bench.conftest import Bench


def test_a_picture_needs_matplotlib_before_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SystemExit):
        bench("training.long_run", "--picture", "picture.svg")
    assert "--picture needs matplotlib: pip install matplotlib" in capsys.readouterr().err
