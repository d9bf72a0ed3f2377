"""What `tokenmill doctor` says of limits under which nothing else could be checked."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.imports import ROOT
from tokenmill.doctor import limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux bounds the address space")


def doctor(cwd: Path, *, space: int, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tokenmill", "doctor"],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")} | variables,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (space, space)),
    )


def test_little_address_space_is_a_finding(tmp_path: Path):
    done = doctor(tmp_path, space=1 << 29, PYTHONSAFEPATH="1")
    assert done.returncode == 1
    assert done.stderr == ""
    fixes = [line.split("→ ")[1] for line in done.stdout.splitlines() if "→" in line]
    assert fixes == ["ulimit -v unlimited", "unset PYTHONSAFEPATH"]


def test_a_folder_that_cannot_be_written_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert list(limits.check_limits(tmp_path)) == []
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    assert [found.name for found in limits.check_limits(tmp_path)] == ["folder"]
