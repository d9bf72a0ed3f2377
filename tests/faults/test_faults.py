"""A few faults of every kind in each run of the tests; `make faults` provokes as many as one likes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.conftest import finished, finished_template, template  # noqa: F401 (fixtures)
from tests.pipeline.project import ROOT, Project

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="trials are forked")]


@pytest.mark.parametrize("kind", ["damage", "values", "kills"])
def test_faults_end_well(kind: str, finished: Project, tmp_path: Path):  # noqa: F811
    command = [sys.executable, "-m", "tests.faults", "--kinds", kind, "--count", "12", "--project", str(finished.root)]
    done = subprocess.run(command, cwd=ROOT, env=finished.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
