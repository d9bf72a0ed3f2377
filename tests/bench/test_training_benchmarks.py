"""The benchmarks of training run, a few steps of next to nothing, and say in a sentence what they lack."""

import json
import re
from pathlib import Path

import pytest
import torch

from tests.bench.conftest import Bench


def test_a_folder_that_is_not_nanogpt_is_refused(bench: Bench, tmp_path: Path):
    with pytest.raises(SystemExit, match=re.escape(f"error: --nanogpt {tmp_path} holds no train.py")):
        bench("peers", "--tiny", "--nanogpt", tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_what_a_training_costs_beside_is_measured(bench: Bench, tmp_path: Path):
    bench("training", "--tiny", "--json", tmp_path / "t.json")
    (row,) = json.loads((tmp_path / "t.json").read_text())
    shares = [float(row[name].rstrip("%")) for name in ("gathering", "outside the model")]
    assert 0 < shares[0] < shares[1] < 100
    assert row["a checkpoint is waited for, s"] > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_the_gpu_benchmark_needs_a_gpu(bench: Bench):
    with pytest.raises(SystemExit) as refused:
        bench("gpu")
    assert refused.value.code == (
        "error: these benchmarks need a CUDA device, and torch sees none here; bench.peers runs on a CPU too."
    )
