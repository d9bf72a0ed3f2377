"""Benchmarks in this process, which has PyTorch already: a process of their own takes seconds to begin."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Bench = Callable[..., str]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """`python -m bench.NAME ARGUMENTS`; gives what it prints."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # which bench.generate sets, and leaves

    def run(name: str, *arguments: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", [f"bench.{name}", *map(str, arguments)])
        importlib.import_module(f"bench.{name}").main()
        return capsys.readouterr().out

    return run
