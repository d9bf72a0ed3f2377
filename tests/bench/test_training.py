"""The benchmarks of training: a run of a few tiny steps gives every figure, and a part that fails
fails alone."""

import json
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from bench.gpu import ALL_PARTS, PARTS, run_part
from bench.harness import Steps, Timed, measure, show_steps
from bench.program import RowFile
from bench.training import beside, growth, ladder, options, overhead, variants
from bench.training.stage_run import train_here
from bench.training.text import numbered, read_text
from bench.training.variants import (
    TINY,
    VARIANTS,
    ScriptAttention,
    left_out,
    loop,
    make,
    vectorised,
)
from tests.bench.conftest import Bench, in_a_process
from tests.tokens.clean_text import PROSE, write_clean
from tests.tokens.packing import pack_here
from tokenmill.core import paths
from tokenmill.model.gpt import build
from tokenmill.model.gpt2 import Attention, Block
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer
from tokenmill.training import optimizer

IDS = np.random.default_rng(0).integers(TINY.vocab_size, size=2000).astype("<u2")


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    IDS.tofile(tmp_path / "tokens.bin")
    return tmp_path / "tokens.bin"


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_takes_steps(variant: str, tokens: Path):
    make(variant, TINY, tokens)(2)


@pytest.mark.parametrize("flash", [False, True])
def test_script_attention_equals_the_models(flash: bool):
    model = build(TINY.config("flash"), seed=0)
    ours = model.blocks[0]
    x_BTD = torch.randn(2, 16, 16)
    assert isinstance(ours, Block)
    assert isinstance(ours.attention, Attention)
    torch.testing.assert_close(
        ScriptAttention(ours.attention, 16, flash=flash)(x_BTD), ours.attention(x_BTD, None, None)
    )


def test_batches_are_the_same_from_file_and_memory(tokens: Path):
    mapped = np.memmap(tokens, dtype="<u2", mode="r")
    inputs, targets = loop(mapped, TINY)()
    same_inputs, same_targets = loop(IDS, TINY)()
    assert torch.equal(inputs, same_inputs)
    assert torch.equal(targets, same_targets)
    for x_BT, y_BT in ((inputs, targets), vectorised(IDS, TINY)()):
        assert x_BT.shape == (TINY.batch, TINY.context_length)
        assert torch.equal(x_BT[:, 1:], y_BT[:, :-1])


def test_emulated_bfloat16_is_left_out(monkeypatch: pytest.MonkeyPatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr(variants, "multiplies_bfloat16", lambda _: True)
    assert left_out("mixed", cpu) is None
    monkeypatch.setattr(variants, "multiplies_bfloat16", lambda _: False)
    assert [
        variant for variant in VARIANTS if variant != "compiled" and left_out(variant, cpu)
    ] == ["mixed"]


def test_without_a_text_the_sample_is_the_text():
    text = read_text(None)
    train, val, characters = numbered(text)
    assert len(train) + len(val) == len(text) > 100_000
    assert "".join(characters[i] for i in train[:500]) == text[:500]


def test_the_gpu_benchmark_takes_at_most_26_minutes():
    assert sum(limit for limit, _ in PARTS.values()) <= 26 * 60


def test_tokenmill_climbs_first():
    times = {"TokenMill": Timed(1.0, [0.5, 0.5, 0.5])}
    assert ladder.ORDER[:3] == ("TokenMill, GPT-2", "TokenMill", "memory map")
    assert sorted(ladder.ORDER) == sorted(VARIANTS)
    (row,) = ladder.rows_of(VARIANTS, times, TINY, 1.0)
    assert "times the first" not in row
    times["memory map"] = Timed(1.0, [2.0, 2.0])  # its turns were cut
    bottom, ours = ladder.rows_of(VARIANTS, times, TINY, 1.0)
    assert (bottom["times the first"], ours["times the first"]) == (1.0, 4.0)
    times["memory map"] = Timed(failed="out of memory")
    assert ladder.rows_of(("memory map", "TokenMill"), times, TINY, 1.0)[1]["times the first"] == 1


@pytest.mark.slow
def test_a_contender_has_turns_for_some_seconds_only(tokens: Path):
    contenders = {"RAM": partial(make, "RAM", TINY, tokens)}
    timed = measure(contenders, rounds=50, steps=1, at_a_time=1, seconds=0.0)
    assert len(timed["RAM"].turns) == 1


def test_the_growth_of_a_step_has_rows_and_exponents(bench: Bench, tmp_path: Path):
    file = tmp_path / "rows.json"
    said = bench("training.growth", "--tiny", "--rounds", "1", "--json", file)
    assert said.count("to the power") == len(growth.OURS)
    found = json.loads(file.read_text())
    assert len(found) == len(growth.OURS) * len(growth.TINY_SIZES)
    assert all(row["seconds a step"] > 0 for row in found)
    assert found[0]["operations a step"] < found[-1]["operations a step"]
    if sys.platform == "linux":
        assert all(50 < row["peak MB"] < 5000 for row in found)


@pytest.mark.slow
def test_steps_are_timed_beside_other_programs(bench: Bench, tmp_path: Path):
    file = tmp_path / "rows.json"
    bench("training.beside", "--tiny", "--json", file)
    found = json.loads(file.read_text())
    names = [row["threads, loops beside them"] for row in found]
    assert names == [f"{way}, 1" for way in beside.WAYS]
    assert all(row["seconds a step"] > 0 for row in found)


def test_a_contender_that_fails_fails_alone(tokens: Path):
    contenders = {name: partial(make, name, TINY, tokens) for name in ("none", "RAM")}
    timed = measure(contenders, rounds=2, steps=1, at_a_time=2)
    assert timed["none"].failed
    assert timed["RAM"].failed is None
    assert timed["RAM"].first > 0
    assert len(timed["RAM"].turns) == 2


def test_a_row_is_there_before_the_next_contender_begins(tmp_path: Path):
    file = tmp_path / "rows.json"
    contenders = {
        "first": partial(rows_of, file),
        "second": partial(rows_of, file),
    }
    show_steps(contenders, "who", RowFile(file), rounds=1, steps=1)
    first, second = json.loads(file.read_text())
    assert "left out" in first, "nothing stood before it"
    assert second["who"] == "second"
    assert second["seconds a step"] > 0


def rows_of(file: Path) -> Steps:
    """Steps of nothing; a file of rows must be there."""
    assert json.loads(file.read_text())
    return lambda _: time.sleep(0.001)


def test_a_part_that_takes_too_long_is_stopped_whole(tmp_path: Path):
    """Its child counts as long as it lives."""
    count = tmp_path / "count"
    child = (
        "import itertools, pathlib\n"
        f"for i in itertools.count(): pathlib.Path({str(count)!r}).write_text(str(i))"
    )
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    for limit in (1, 10, 100):  # seconds; the child of a busy machine begins late
        assert run_part([sys.executable, "-c", program], tmp_path / "rows.json", limit=limit).failed
        if count.exists():
            break
    ended_at = count.read_text()
    time.sleep(0.3)
    assert count.read_text() == ended_at


@pytest.mark.parametrize(("code", "fails"), [("pass", False), ("1 / 0", True)])
def test_a_part_keeps_the_rows_it_wrote(tmp_path: Path, code: str, fails: bool):
    file = tmp_path / "rows.json"
    program = f"import pathlib; pathlib.Path({str(file)!r}).write_text('[1]'); {code}"
    part = run_part([sys.executable, "-c", program], file, limit=60)
    assert (part.rows, bool(part.failed)) == ([1], fails)


@dataclass(frozen=True)
class Run:
    """The folder that one tiny run of all GPU parts wrote to."""

    folder: Path

    def json(self, name: str) -> Any:
        return json.loads((self.folder / f"{name}.json").read_text())


ALL_BUT_ONE = [part for part in ALL_PARTS if part != "steps-16x1024"]
"""Steps of one of the two shapes."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Run:
    here = tmp_path_factory.mktemp("gpu")
    (here / "text.txt").write_text("Now is the winter of our discontent.\n" * 500, encoding="utf-8")
    (here / "sitecustomize.py").write_text(ONLY_FEW_PACKAGES)
    (here / "all_parts.py").write_text(ALL_PARTS_HERE)
    given = ("--tiny", "--text", here / "text.txt", "--output", here / "out")
    done = in_a_process("all_parts", *given, "--part", *ALL_BUT_ONE, path=here)
    assert done.returncode == 0, done.stderr + done.stdout
    return Run(here / "out")


ONLY_FEW_PACKAGES = """
import sys
from importlib.machinery import PathFinder

OURS = {"tokenmill", "bench", "stages", "tests", "all_parts"}
GIVEN = {"torch", "numpy", "safetensors", "pydantic", "ruamel", "filelock", "fsspec", "rich"}
GIVEN |= {"psutil"}
TORCH = {"torchgen", "functorch", "sympy", "mpmath", "networkx", "jinja2", "markupsafe"}
TORCH |= {"typing_extensions"}
OTHERS = {"pydantic_core", "annotated_types", "typing_inspection"}
OTHERS |= {"markdown_it", "mdurl", "pygments"}
ALLOWED = OURS | GIVEN | TORCH | OTHERS | set(sys.stdlib_module_names) | {"__main__", "__mp_main__"}

class Few:
    @staticmethod
    def find_spec(name, path=None, target=None):
        top = name.partition(".")[0]
        # The second is a part of Python that has the system's name
        known = top in ALLOWED or top.startswith("_sysconfigdata")
        return PathFinder.find_spec(name, path, target) if known else None

finders = [finder for finder in sys.meta_path if isinstance(finder, type)]
sys.meta_path[:] = [Few if finder is PathFinder else finder for finder in finders]
"""
"""What a GPU machine has: Python finds no other package than those that bench/gpu.py names, and
what they need."""


ALL_PARTS_HERE = """
import importlib, json, sys
from bench import gpu
from bench.training import correctness
from tests import forks

def here(command, file, *, limit):
    sys.argv, failed = command[2:], None
    try:
        importlib.import_module(command[2]).main()
    except SystemExit as end:
        failed = end.code and str(end.code)
    return gpu.Part(json.loads(file.read_text()), failed)

if __name__ == "__main__":  # a contender imports this, too
    gpu.run_part = here
    correctness.SIZES.update(n_embd=32, vocab_size=100, context_length=16)
    with forks.in_place_of_spawning("bench.harness"):
        gpu.main()
"""
"""bench.gpu with all parts in its own process, for each new one imports PyTorch, and with forked
contenders and smaller models; `run_part` has tests of its own."""


@pytest.mark.slow
def test_every_gpu_part_runs_where_little_is_installed(tiny: Run):
    figures = tiny.json("figures")
    assert [*figures["parts"]] == ALL_BUT_ONE
    assert len(figures["targets"]) == 6
    assert all(row["passed"] for row in tiny.json("correctness"))
    assert {row["TokenMill"] > 0 for row in tiny.json("generation")} == {True}
    assert not [part["failed"] for part in figures["parts"].values() if part["failed"]]
    ladder = tiny.json("ladder")
    assert [row["variant"] for row in ladder] == ["TokenMill, GPT-2", "TokenMill"]
    assert all(row["tokens/s"] > 0 < row["utilisation"] for row in ladder if "left out" not in row)
    several = tiny.json("parallel")
    assert [row["parallel"] for row in several] == ["none", "ddp", "fsdp"]
    assert all(row["tokens/s"] > 0 for row in several), several
    tried = tiny.json("options")
    assert [row["option"] for row in tried] == ["as it is", "symmetric products"]
    assert all(row["times the first"] > 0 for row in tried), tried
    (to_the_loss,) = tiny.json("loss")
    assert to_the_loss["who"].startswith("TokenMill")
    assert all(row["tokens/s"] > 0 for row in tiny.json("steps-64x512"))


@pytest.mark.parametrize("shape", [(2, 8, 8), (3, 7, 20)])
def test_symmetric_products_give_the_same_matrices(shape: tuple[int, ...]):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x /= x.norm(dim=(1, 2), keepdim=True)
    torch.testing.assert_close(options.product_with_itself(x), x @ x.mT)
    ordinary = optimizer.orthogonal(x, torch.float64)
    with mock.patch.object(optimizer, "_iterated", options.iterated):
        torch.testing.assert_close(optimizer.orthogonal(x, torch.float64), ordinary)


def test_a_batch_is_measured_from_each_place(bench: Bench, tmp_path: Path):
    clean = write_clean(tmp_path / "clean", PROSE)
    characters = TokenizerParams(type="char", vocab_size=1, sample_bytes=1)
    train_tokenizer(clean, tmp_path / "tokenizer.json", characters)
    split = TokenizeParams(split="hash", val_fraction=0.3)
    pack_here(clean, tmp_path / "tokenizer.json", tmp_path / paths.PACKED, split)
    rows = tmp_path / "rows.json"
    bench("training.placement", tmp_path, "--batch", "3", "--context", "20", "--json", rows)
    found = {row["place"]: row for row in json.loads(rows.read_text())}
    assert {"memory", "mmap", "compressed"} < found.keys()
    assert all(row["ms a batch"] > 0 for row in found.values())


def test_the_overhead_of_training_is_measured():
    row = overhead.measure(overhead.TINY, steps=2 * overhead.CHECKPOINTS)
    shares = [float(row[name].rstrip("%")) for name in ("gathering", "outside the model")]
    assert 0 < shares[0] < shares[1] < 100


def test_a_run_on_random_tokens_writes_what_the_stage_does(here: Path):
    train_here(overhead.TINY, steps=2, epochs=1, every_steps=1)
    assert (here / paths.MODEL / "epoch-1").is_dir()
    assert list((here / paths.LIVE).iterdir()), "the files of `tokenmill watch` cost time, too"
    assert list((here / paths.METRICS).glob("timing.csv"))


def test_a_folder_that_is_not_nanogpt_is_refused(bench: Bench, tmp_path: Path):
    with pytest.raises(SystemExit) as refused:
        bench("training.peers", "--tiny", "--nanogpt", tmp_path)
    assert str(tmp_path) in str(refused.value.code)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_the_gpu_benchmark_needs_a_gpu(bench: Bench):
    with pytest.raises(SystemExit) as refused:
        bench("gpu")
    assert "CUDA" in str(refused.value.code)
