"""The benchmarks of training run, a few steps of next to nothing, and say in a sentence what they lack."""

import json
import re
from pathlib import Path

import pytest
import torch

from tests.bench.conftest import Bench, in_a_process


def test_the_ladder_has_a_row_for_each_rung_and_a_picture(tmp_path: Path):
    rungs = ["memory map", "TokenMill"]
    files = ("--picture", tmp_path / "l.svg", "--json", tmp_path / "l.json")
    done = in_a_process("ladder", "--tiny", "--rounds", "1", "--only", *rungs, "--peak-tflops", "1", *files)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "l.json").read_text())
    assert [row["rung"] for row in rows] == rungs
    assert all(row["tokens/s"] > 0 < row["utilisation"] for row in rows)
    assert rows[0]["original, s"] == 1.6
    assert [line.split("  ")[0] for line in done.stdout.splitlines()[2:4]] == rungs
    assert (tmp_path / "l.svg").read_text().lstrip().startswith("<?xml")


@pytest.mark.filterwarnings("ignore")
def test_without_a_checkout_the_peers_benchmark_says_so_and_runs_alone(bench: Bench, tmp_path: Path):
    text = tmp_path / "text.txt"
    text.write_text("Now is the winter of our discontent.\n" * 500, encoding="utf-8")
    assert "no --nanogpt PATH" in bench("peers", "--tiny", "--text", text, "--json", tmp_path / "p.json")
    rows = json.loads((tmp_path / "p.json").read_text())
    assert {row.get("to the loss") for row in rows} == {None, "TokenMill"}
    assert all(row["tokens/s"] > 0 for row in rows if "steps" in row)


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
