"""The Pythons that the project promises, and whether the package index has what they need."""

import functools
import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import wheels
from tests.imports import ROOT


@functools.cache
def index_answers() -> bool:
    """Whether pip reaches the package index that this machine uses."""
    ask = [sys.executable, "-m", "pip", "index", "versions", "pip", "--timeout", "2", "--retries", "0"]
    return subprocess.run(ask, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("uv"), reason="uv is not here; `pip install uv` brings it")
@pytest.mark.parametrize(("python", "system"), list(itertools.product(wheels.pythons(), wheels.SYSTEMS)))
def test_every_pin_has_a_wheel(python: str, system: str) -> None:
    if not index_answers():
        pytest.skip("the package index does not answer")
    assert wheels.problem(python, system) is None


@pytest.mark.parametrize("file", ["Makefile", "stages/__main__.py"])
def test_all_refuse_the_same_pythons(file: str) -> None:
    newest = wheels.pythons()[-1]
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(r"\(3, 11\) <= sys\.version_info < \((\d+), (\d+)\)", text).groups() == (  # pyright: ignore[reportOptionalMemberAccess]
        "3",
        str(int(newest.split(".")[1]) + 1),
    )
    assert f"Python 3.11 to {newest}" in text


def test_readme_promises_the_same_pythons() -> None:
    assert f"Python 3.11 to {wheels.pythons()[-1]}" in Path(ROOT / "README.md").read_text(encoding="utf-8")
