"""How long threads wait awake: said before PyTorch is loaded, and never over the user's own word."""

import os
import subprocess
import sys

import pytest

from tests.imports import ROOT
from tokenmill.openmp import SPINS


@pytest.mark.parametrize(("own", "meant"), [({}, str(SPINS)), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_a_stage_says_it_before_pytorch_is_there(own: dict[str, str], meant: str):
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"} | own
    code = "import os, sys, stages; assert 'torch' not in sys.modules; print(os.environ['GOMP_SPINCOUNT'])"
    said = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, env=environment, text=True)
    assert said.strip() == meant
