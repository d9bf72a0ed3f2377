"""A benchmark that takes next to nothing from the command line says so, and measures nothing."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from bench.program import environment
from tests.bench.conftest import Bench
from tests.imports import ROOT


@pytest.mark.parametrize("name", ["data.driver", "data.scale", "formats", "scale_table"])
def test_help_is_printed_in_place_of_measuring(
    name: str, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        bench(name, "--help")
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: ")
    assert "| --- |" not in printed


def test_a_driver_without_a_text_is_a_sentence(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        bench("data.driver")
    assert end.value.code == 2
    assert "required: raw" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["data.__main__", "data.growth", "index"])
def test_scratch_that_is_not_there_is_a_sentence(name: str, bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        bench(name, "--scratch", tmp_path / "none")
    assert str(tmp_path / "none") in str(end.value.code)


def test_a_job_without_its_start_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["jobs.py"])
    with pytest.raises(SystemExit, match="START"):
        runpy.run_path(str(ROOT / "bench/data/jobs.py"), run_name="__main__")


@pytest.mark.parametrize("name", ["bench.data", "bench.data.scale"])
def test_the_usage_is_what_to_type(name: str) -> None:
    command = [sys.executable, "-m", name, "--help"]
    said = subprocess.check_output(command, env=environment(), text=True)
    assert said.startswith(f"usage: python -m {name} [")
