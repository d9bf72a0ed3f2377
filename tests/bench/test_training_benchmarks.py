"""The benchmarks of training run, a few steps of next to nothing, and say in a sentence what they lack."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


def bench(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"bench.{name}", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_ladder_has_a_row_for_each_rung_and_a_picture(tmp_path: Path):
    done = bench(
        "ladder", "--tiny", "--peak-tflops", "1", "--picture", tmp_path / "l.svg", "--json", tmp_path / "l.json"
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "l.json").read_text())
    assert [row["rung"] for row in rows][:6] == ["memory map", "RAM", "vectorised", "compiled", "mixed", "flash"]
    assert [row["rung"] for row in rows][6:] == ["TokenMill, GPT-2", "TokenMill"]
    assert all(row["tokens/s"] > 0 and row["utilisation"].endswith("%") for row in rows)
    assert (tmp_path / "l.svg").read_text().lstrip().startswith("<?xml")


def test_without_a_checkout_the_peers_benchmark_says_so_and_runs_alone(tmp_path: Path):
    text = tmp_path / "text.txt"
    text.write_text("Now is the winter of our discontent.\n" * 500, encoding="utf-8")
    done = bench("peers", "--tiny", "--text", text, "--json", tmp_path / "p.json")
    assert done.returncode == 0, done.stderr
    assert "no --nanogpt PATH" in done.stdout
    rows = json.loads((tmp_path / "p.json").read_text())
    assert {row.get("to the loss") for row in rows} == {None, "TokenMill"}
    assert all(row["tokens/s"] > 0 for row in rows if "steps" in row)


def test_a_folder_that_is_not_nanogpt_is_refused(tmp_path: Path):
    done = bench("peers", "--tiny", "--nanogpt", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: --nanogpt {tmp_path} holds no train.py")


def test_what_a_training_costs_beside_is_measured(tmp_path: Path):
    done = bench("training", "--tiny", "--json", tmp_path / "t.json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "t.json").read_text())
    assert 0 < float(row["outside the model"].rstrip("%")) < 100
    assert row["a checkpoint, s"] > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_the_gpu_benchmark_needs_a_gpu():
    done = bench("gpu")
    assert done.returncode == 1
    assert done.stderr == (
        "error: these benchmarks need a CUDA device, and torch sees none here; bench.peers runs on a CPU too.\n"
    )
