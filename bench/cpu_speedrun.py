"""Seconds on a CPU to a validation loss: python -m bench.cpu_speedrun --text shakespeare.txt

The text is numbered by characters, and its last tenth validates, as nanoGPT's Tiny Shakespeare
does. For each mark a preset is trained by the stage `train`, in a process of its own whose whole
time counts: start, training, validations, checkpoints. Then the loss is measured again, on every
sequence of the validation text, by the function that measures nanoGPT's. The marks on Tiny
Shakespeare are nanoGPT's losses with its recipes for a CPU (1.911) and a GPU (1.4697), and two
between. docs/speedrun.md has the rules and the records.

With `--nanogpt CHECKOUT` nanoGPT's script runs first, with its recipe for a CPU, and its loss is
the mark, on any text: the presets are tried in their order until one reaches it.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.harness import ROOT, RowFile, compute_for, section
from bench.machine import processor
from bench.training import nanogpt
from bench.training.peers import CPU, TINY, Row, their_run
from bench.training.text import numbered, read_text, spread, write_tokens
from bench.training.to_loss import mean_loss, train_stage
from tokenmill.core.paths import HISTORY
from tokenmill.model.gpt import parameter_count
from tokenmill.stage import report_errors
from tokenmill.training.history import EpochRow, read_table


@dataclass(frozen=True)
class Preset:
    """A training that reaches a mark."""

    mark: float
    """The validation loss on Tiny Shakespeare that it is for, in nats per character."""
    model: dict[str, Any]
    """What it changes in the section `model` of params.yaml."""
    train: dict[str, Any]
    """The same for the section `train`."""
    share: float
    """How much of the training text it sees: pieces of a thousand characters, evenly spread."""


def _preset(
    mark: float, *, share: float, epochs: int, batch: int, context: int, rate: float
) -> Preset:
    """Four layers of 128 features, with rows for pairs and triples of characters."""
    model = {"architecture": "speedrun", "n_layer": 4, "n_head": 4, "n_embd": 128}
    train = {
        "epochs": epochs,
        "batch_size": batch,
        "learning_rate": rate,
        "schedule": {"type": "wsd", "warmup_steps": 10, "decay_fraction": 0.6},
        "validation_bytes": None,
    }
    return Preset(mark, model | {"context_length": context}, train, share)


PRESETS = (
    _preset(1.911, share=0.14, epochs=1, batch=24, context=64, rate=1.6e-2),
    _preset(1.65, share=0.9, epochs=1, batch=16, context=128, rate=1.1e-2),
    _preset(1.55, share=0.7, epochs=2, batch=16, context=128, rate=7e-3),
    _preset(1.4697, share=1.0, epochs=3, batch=16, context=128, rate=6e-3),
)

TINY_PRESETS = (
    Preset(
        9.0,
        {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 16},
        {"batch_size": 8, "learning_rate": 1e-2, "epochs": 1, "validation_bytes": None},
        share=0.05,
    ),
)
"""To see that the benchmark runs."""


def main() -> None:
    """Run what was asked for, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, help="a text file; default: the built-in sample")
    parser.add_argument(
        "--nanogpt", type=Path, help="a checkout of nanoGPT, whose loss on the text is the mark"
    )
    parser.add_argument(
        "--marks",
        type=float,
        nargs="+",
        choices=[preset.mark for preset in PRESETS],
        help="only the presets of these marks; default: all",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[0],
        help="train with each of them; with --nanogpt, with the first one",
    )
    parser.add_argument("--tiny", action="store_true", help="one small model, to see that it runs")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    options = parser.parse_args()
    report_errors(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """All presets with all seeds, or those up to the one that reaches nanoGPT's loss."""
    train, val, characters = numbered(read_text(options.text))
    presets = TINY_PRESETS if options.tiny else PRESETS
    if options.marks:
        presets = tuple(preset for preset in presets if preset.mark in options.marks)
    file = RowFile(options.json)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        text = Text(train, val, len(characters), Path(folder))
        rows = (
            against_nanogpt(options, presets, text)
            if options.nanogpt
            else (reach(p, p.mark, text, seed=s) for p in presets for s in options.seeds)
        )
        show(rows, file)


@dataclass(frozen=True)
class Text:
    """A text as numbers, and a folder to train in."""

    train: np.ndarray
    val: np.ndarray
    vocabulary: int
    folder: Path

    def new_folder(self, name: str) -> Path:
        """A folder that nothing has used."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))


def against_nanogpt(
    options: argparse.Namespace, presets: Iterable[Preset], text: Text
) -> Iterator[Row]:
    """nanoGPT's row, then those of the presets up to the first one that reaches its loss."""
    nanogpt.check(options.nanogpt)
    recipe = TINY if options.tiny else CPU
    theirs = their_run(options, recipe, text.new_folder("nanogpt") / "run", text.train, text.val)
    mark = theirs["validation loss"]
    yield {"who": "nanoGPT", "mark": mark, "loss": mark} | _cost(
        theirs["seconds"], theirs["tokens"]
    )
    for preset in presets:
        row = reach(preset, mark, text, seed=options.seeds[0])
        yield row | {"times fewer seconds": round(theirs["seconds"] / row["seconds"], 1)}
        if row["reached"]:
            break


def reach(preset: Preset, mark: float, text: Text, *, seed: int) -> Row:
    """Train a preset until it reaches `mark`, in nats per character, or to its end."""
    here = text.new_folder("tokenmill")
    part = spread(text.train, preset.share) if preset.share < 1 else text.train
    write_tokens(here / "data" / "tokens", train=part, val=text.val, vocabulary=text.vocabulary)
    model = section("model", dropout=0.0, **preset.model) | {"start_from": "models/random"}
    changes = preset.train | {"seed": seed, "target_loss": mark}
    seconds, gpt = train_stage({"model": model, "train": section("train", **changes)}, here)
    loss = mean_loss(lambda x, _: gpt(x), gpt, text.val, gpt.config.context_length)
    tokens = read_table(here / HISTORY, EpochRow)[-1].tokens
    return {
        "who": f"TokenMill, {gpt.config.architecture}, seed {seed}",
        "mark": mark,
        "loss": round(loss, 4),
        "reached": loss <= mark,
        "parameters": parameter_count(gpt.config),
    } | _cost(seconds, tokens)


def _cost(seconds: float, tokens: int) -> Row:
    return {"seconds": round(seconds, 1), "tokens": tokens}


def show(rows: Iterable[Row], file: RowFile) -> None:
    """Print each row as soon as it is there, and write it."""
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
        file.add(row)


def machine() -> str:
    """A line about what the figures were measured on: processor, threads, versions, commit."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    compute = compute_for("auto")
    kind = str(compute.precision).removeprefix("torch.")
    return (
        f"{processor()}, {torch.get_num_threads()} threads, {kind}, "
        f"PyTorch {torch.__version__}, commit {commit or 'unknown'}"
    )


if __name__ == "__main__":
    main()
