"""A training step, a validation, and a checkpoint there and back trace on CUDA, in every
combination, without a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda import fake
from tests.cuda.matrix import COMBINATIONS, PLACES
from tests.imports import ROOT

pytestmark = pytest.mark.skipif(fake.COMPILER is None, reason="the shim needs g++")


@pytest.mark.slow
def test_every_combination_traces_without_a_wait(shim: Path):
    """One process for all of them, because it takes seconds to start."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.cuda.matrix", str(shim)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = {row.pop("combination"): row for row in map(json.loads, done.stdout.splitlines())}
    waits = ["copy cpu -> cuda, (3,)", "copy cuda -> cpu, (3,)", "value"]
    assert found.pop("control") == {"waits": waits}, "what waits would not be seen"
    nothing = {place: {"waits": []} for place in PLACES}
    assert found == dict.fromkeys(COMBINATIONS, nothing)
