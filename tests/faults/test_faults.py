"""A few faults of every kind in each run of the tests; `make faults` provokes as many as one
likes."""

import subprocess
import sys

import pytest

from tests.imports import ROOT
from tests.pipeline.conftest import finished, finished_template, template  # noqa: F401 (fixtures)
from tests.pipeline.project import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="trials are forked"),
]


def test_a_few_faults_of_every_kind_end_well(finished: Project):  # noqa: F811
    kinds = ("damage", "values", "kills", "pipes", "links", "live", "surround", "address")
    command = [
        "python",
        "-m",
        "tests.faults",
        "--kinds",
        *kinds,
        "--count",
        "12",
        "--project",
        str(finished.root),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=finished.forking_env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
