"""The climb from 1.6 s a step to 0.1, again, as real code on one model and one text: `python -m bench.ladder`.

TokenMill began as a script on an A100 whose steps took 1.6 s; what made them shorter, one by one, is replayed here:

  memory map   tokens read from a file map in a Python loop, a window at a time; float32, plain attention
  RAM          the same from memory
  vectorised   a batch by one index
  compiled     torch.compile
  mixed        matrix products in bfloat16
  flash        scaled_dot_product_attention
  TokenMill    its own step: the same model with AdamW, and then its default, `modern` with Muon

Small on a CPU; on a GPU at full size (134M: 12 layers, 12 heads, 768 wide, vocabulary 32,000, batch 64, context 512).
Utilisation (training/flops.py) is of the peak that is known for the device, or given by --peak-tflops.
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.stepping import Steps, compute_for, tokenmill_steps, train_params
from tokenmill.model.build import build
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt2 import Attention, Block
from tokenmill.stage import report_errors
from tokenmill.training.batches import Windows
from tokenmill.training.flops import flops_per_token, peak_flops

ORIGINAL = (1.6, 0.8, 0.5, 0.35, 0.225, 0.1)
"""Seconds a step of the original script on an A100, rung by rung."""
RUNGS = ("memory map", "RAM", "vectorised", "compiled", "mixed", "flash", "TokenMill, GPT-2", "TokenMill")
Row = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """Model, batch and length of the measurement."""

    n_layer: int
    n_head: int
    n_embd: int
    vocab_size: int
    context_length: int
    batch: int
    steps: int

    def config(self, architecture: str) -> ModelConfig:
        """The model of this size."""
        sizes = {k: getattr(self, k) for k in ("n_layer", "n_head", "n_embd", "vocab_size", "context_length")}
        return ModelConfig.model_validate({"architecture": architecture, "dropout": 0.0} | sizes)


FULL = Size(n_layer=12, n_head=12, n_embd=768, vocab_size=32_000, context_length=512, batch=64, steps=10)
SMALL = Size(n_layer=4, n_head=4, n_embd=256, vocab_size=4096, context_length=128, batch=16, steps=5)
TINY = Size(n_layer=1, n_head=2, n_embd=16, vocab_size=64, context_length=16, batch=4, steps=2)


class PlainAttention(nn.Module):
    """A layer's attention as most scripts write it: all scores, a mask, a softmax."""

    def __init__(self, layer: Attention, context_length: int):
        super().__init__()
        self.layer = layer
        self.register_buffer("mask", torch.ones(context_length, context_length).tril().bool(), persistent=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        heads, length = self.layer.n_head, x_BTD.shape[1]
        q, k, v = (h.unflatten(-1, (heads, -1)).transpose(1, 2) for h in self.layer.qkv(x_BTD).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
        scores = scores.masked_fill(~self.mask[:length, :length], -torch.inf)  # type: ignore[index]
        return self.layer.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def main() -> None:
    """Climb, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a few steps of next to nothing: only to see that it runs")
    parser.add_argument("--no-compile", action="store_true", help="leave compilation out of every rung")
    parser.add_argument("--peak-tflops", type=float, help="the device's peak in the precision used")
    parser.add_argument("--picture", type=Path, default=Path("ladder.svg"))
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    report_errors(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """The whole ladder."""
    size = TINY if options.tiny else FULL if torch.cuda.is_available() else SMALL
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    peak = options.peak_tflops * 1e12 if options.peak_tflops else peak_flops(device)
    rows = climb(size, compiled=not (options.no_compile or options.tiny), peak=peak)
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    draw(rows, options.picture)
    print(f"drawn: {options.picture}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def climb(size: Size, *, compiled: bool, peak: float | None) -> list[Row]:
    """A row for each rung, each measured in a process of its own."""
    ids = np.random.default_rng(0).integers(size.vocab_size, size=size.batch * size.context_length * 64).astype("<u2")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        ids.tofile(path)
        for name, original in zip(RUNGS, (*ORIGINAL, None, None), strict=True):
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
                seconds = process.submit(time_of, name, size, path, compiled=compiled).result()
            rows.append(_row(name, seconds, size, peak) | _climbed(seconds, rows, original))
    return rows


def _row(name: str, seconds: float, size: Size, peak: float | None) -> Row:
    row: Row = {"rung": name, "seconds a step": round(seconds, 4)}
    row["tokens/s"] = round(size.batch * size.context_length / seconds)
    if peak is not None:
        config = size.config("modern" if name == RUNGS[-1] else "gpt2")
        work = flops_per_token(config) * size.batch * size.context_length
        row["utilisation"] = f"{work / seconds / peak:.1%}"
    return row


def _climbed(seconds: float, before: list[Row], original: float | None) -> Row:
    row: Row = {"times the first": round((before[0]["seconds a step"] if before else seconds) / seconds, 2)}
    if original is not None:
        row |= {"original seconds": original, "original times the first": round(ORIGINAL[0] / original, 2)}
    return row


def loop(ids: np.ndarray, size: Size) -> Callable[[], tuple[Tensor, Tensor]]:
    """A batch a window at a time, a number at a time."""
    draws = np.random.default_rng(1)

    def batch() -> tuple[Tensor, Tensor]:
        inputs, targets = [], []
        for start in draws.integers(len(ids) - size.context_length - 1, size=size.batch):
            window = [int(ids[start + offset]) for offset in range(size.context_length + 1)]
            inputs.append(window[:-1])
            targets.append(window[1:])
        return torch.tensor(inputs), torch.tensor(targets)

    return batch


def vectorised(ids: np.ndarray, size: Size) -> Callable[[], tuple[Tensor, Tensor]]:
    """A batch by one index."""
    tokens, draws = torch.from_numpy(ids.astype(np.int32)), np.random.default_rng(1)
    windows = Windows(tokens, context_length=size.context_length, device=torch.device("cpu"))
    return lambda: windows.gather(draws.integers(windows.count, size=size.batch))


def rung(
    size: Size,
    batch: Callable[[], tuple[Tensor, Tensor]],
    *,
    compiled: bool = False,
    mixed: bool = False,
    flash: bool = False,
) -> Steps:
    """GPT-2 with AdamW as a plain script has it, with these gains and no other."""
    torch.set_float32_matmul_precision("highest")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build(size.config("gpt2"), seed=0)
    for block in model.blocks if not flash else ():
        assert isinstance(block, Block)
        block.attention = PlainAttention(block.attention, size.context_length)  # type: ignore[assignment]
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    forward: Callable[[Tensor], Tensor] = torch.compile(model) if compiled else model

    def steps(count: int) -> None:
        for _ in range(count):
            inputs, targets = (ids.to(device) for ids in batch())
            with torch.autocast(device, dtype=torch.bfloat16, enabled=mixed):
                logits = forward(inputs)
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()

    return steps


def tokenmill(size: Size, ids: np.ndarray, *, compiled: bool, **changes: Any) -> Steps:
    """TokenMill's own step with its choices for this machine."""
    train = train_params(batch_size=size.batch, learning_rate=1e-4, **changes)
    compute = compute_for(train.precision, compile_="auto" if compiled else "off")
    return tokenmill_steps(size.config("gpt2" if changes else "modern"), train, compute, ids)


def make(name: str, size: Size, path: Path, *, compiled: bool) -> Steps:
    """The steps of a rung."""
    mapped = np.memmap(path, dtype="<u2", mode="r")
    ids = np.array(mapped)
    if name in ("memory map", "RAM"):
        return rung(size, loop(mapped if name == "memory map" else ids, size))
    if name == "TokenMill, GPT-2":
        return tokenmill(size, ids, compiled=compiled, optimizer="adamw")
    if name == "TokenMill":
        return tokenmill(size, ids, compiled=compiled)
    done = RUNGS.index(name) - RUNGS.index("vectorised")
    return rung(size, vectorised(ids, size), compiled=compiled and done > 0, mixed=done > 1, flash=done > 2)


def time_of(name: str, size: Size, path: Path, *, compiled: bool) -> float:
    """Median seconds of a step, after some to warm up."""
    steps = make(name, size, path, compiled=compiled)
    steps(3)
    took = []
    for _ in range(size.steps):
        began = time.perf_counter()
        steps(1)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def draw(rows: list[Row], path: Path) -> None:
    """Seconds a step, rung by rung, beside the original's, on a logarithmic axis."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 (takes a second to load)

    figure, axes = plt.subplots(figsize=(8, 4))
    names = [row["rung"] for row in rows]
    here = axes.bar(np.arange(len(rows)) - 0.2, [row["seconds a step"] for row in rows], 0.4, label="here")
    axes.bar(np.arange(len(ORIGINAL)) + 0.2, ORIGINAL, 0.4, label="the original, A100", color="lightgrey")
    axes.bar_label(here, [f"{row['times the first']}x" for row in rows], fontsize=8)
    axes.set_xticks(range(len(rows)), [name.replace(", ", ",\n") for name in names], fontsize=8)
    axes.set_yscale("log")
    axes.set_ylabel("seconds a step")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


if __name__ == "__main__":
    main()
