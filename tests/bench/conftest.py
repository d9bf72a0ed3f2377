"""Benchmarks in this process, which has PyTorch already, or in one of their own, which takes
seconds to begin."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import forks
from tests.imports import ROOT
from tests.pipeline.dvc_server import forking

Bench = Callable[..., str]


@pytest.fixture(scope="package", autouse=True)
def contenders_are_forked() -> Iterator[None]:
    """Each still has a process of its own."""
    with forks.in_place_of_spawning("bench.harness"):
        yield


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """`python -m bench.NAME ARGUMENTS`; gives what it prints."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # which bench.generate sets, and leaves

    def run(name: str, *arguments: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", [f"bench.{name}", *map(str, arguments)])
        importlib.import_module(f"bench.{name}").main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def forked_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of bench.data are forked."""
    monkeypatch.setattr(sys, "executable", str(forking() / "python"))


def in_a_process(
    name: str, *arguments: str | Path, path: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """The same as a program, with `path` among the places where Python looks for modules."""
    return subprocess.run(
        [sys.executable, "-m", name, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{path}", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
