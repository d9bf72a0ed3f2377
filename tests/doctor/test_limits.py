"""Limits under which nothing could be checked or run: what `tokenmill doctor` and a stage say."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.imports import ROOT
from tokenmill.doctor.environment import check_limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux bounds the address space")


def limited(
    *command: str, cwd: Path, space: int, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a module in a process that gets so much address space."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")} | variables,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (space, space)),
    )


def test_little_address_space_is_a_finding(tmp_path: Path):
    done = limited("tokenmill", "doctor", cwd=tmp_path, space=1 << 29, PYTHONSAFEPATH="1")
    assert done.returncode == 1
    assert done.stderr == ""
    fixes = [line.split("→ ")[1] for line in done.stdout.splitlines() if "→" in line]
    assert fixes == ["ulimit -v unlimited", "unset PYTHONSAFEPATH"]


def test_a_stage_refuses_little_address_space():
    done = limited("stages", "clean", cwd=ROOT, space=1 << 30)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "ulimit -v unlimited" in done.stderr
    assert done.stderr.count("\n") == 1


def test_names_that_the_locale_lacks_are_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    assert [found.level for found in check_limits(tmp_path)] == ["warning"]


def test_a_folder_that_cannot_be_written_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert list(check_limits(tmp_path)) == []
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    assert [found.name for found in check_limits(tmp_path)] == ["folder"]
