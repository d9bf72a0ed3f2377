"""The numbers of models and training hold in the arithmetic of older processors, too."""

import os
import subprocess
import sys

import pytest
import torch

from tests.imports import ROOT

OLDER = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
"""Neither AVX-512 nor products of bfloat16, in oneDNN and in PyTorch's own kernels."""

FILES = (
    "evaluation/test_generate.py",
    "model/test_ops.py",
    "model/test_sequences.py",
    "training/test_optimizer.py",
    "training/test_step.py",
    "evaluation/test_evaluate.py",
)
"""The tests of this process whose numbers a processor rounds."""


@pytest.mark.slow
@pytest.mark.skipif(
    "AVX512" not in torch.backends.cpu.get_cpu_capability(), reason="this process has no other one"
)
def test_numbers_hold_in_the_arithmetic_of_avx2() -> None:
    run = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    run += ["-m", "not slow", "-k", "not transformers", *(f"tests/{name}" for name in FILES)]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    } | OLDER
    done = subprocess.run(
        run, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
