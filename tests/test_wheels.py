"""The versions of Python and PyTorch that the project promises, and whether the package index has
what they need."""

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import wheels
from tests.imports import ROOT


@functools.cache
def index_answers() -> bool:
    """Whether pip reaches the package index that this machine uses."""
    ask = [
        sys.executable,
        "-m",
        "pip",
        "index",
        "versions",
        "pip",
        "--timeout",
        "2",
        "--retries",
        "0",
    ]
    return subprocess.run(ask, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("uv"), reason="there is no uv; `pip install -e '.[gate]'` brings it"
)
@pytest.mark.parametrize(
    ("python", "system", "torch"),
    [
        (wheels.pythons()[0], "linux-arm", wheels.pins()["torch"]),
        (wheels.pythons()[-1], "macos", wheels.oldest_torch()),
    ],
)
def test_every_pin_has_a_wheel(python: str, system: str, torch: str) -> None:
    """At two corners; `.ci/run` asks about all, which takes minutes of waiting for the index."""
    if not index_answers():
        pytest.skip("the package index does not answer")
    assert wheels.problem(python, system, torch) is None


def test_what_is_pinned_is_allowed() -> None:
    pins = wheels.pins()
    wanted = [Requirement(text) for text in wheels.PROJECT["dependencies"]]
    assert [
        str(each) for each in wanted if pins[canonicalize_name(each.name)] not in each.specifier
    ] == []


@pytest.mark.skipif(not shutil.which("make"), reason="make is not here")
def test_make_tests_the_oldest_torch() -> None:
    # Not as a part of `make test`
    alone = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    command = ["make", "-n", "test-oldest-torch"]
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=True)
    assert f"TORCH={wheels.oldest_torch()} " in done.stdout.splitlines()[0]


def test_contributors_are_told_the_newest_torch() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"TORCH='{wheels.newest_torch()}' test" in text


@pytest.mark.parametrize(
    "file", ["README.md", "bench/README.md", "docs/decisions.md", "docs/troubleshooting.md"]
)
def test_documents_promise_the_same_torch(file: str) -> None:
    oldest, newest = (
        ".".join(version.split(".")[:2])
        for version in (wheels.oldest_torch(), wheels.newest_torch())
    )
    assert f"{oldest} to {newest}" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "file",
    [
        "docs/resume.md",
        "docs/sharing.md",
        "docs/tour.md",
        "src/tokenmill/runs/export.py",
    ],
)
def test_what_is_added_later_leaves_the_torch_of_make(file: str) -> None:
    """constraints.txt has the pinned PyTorch, which pip would put in place of a machine's own."""
    text = (ROOT / file).read_text(encoding="utf-8")
    assert set(re.findall(r"pip install (.*?)-e ", text)) == {"-c .venv/constraints.txt "}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "torch==$(TORCH)/' constraints.txt >$(VENV)/constraints.txt" in makefile


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
    assert f"Python 3.11 to {wheels.pythons()[-1]}" in Path(ROOT / "README.md").read_text(
        encoding="utf-8"
    )
