"""Seconds on a CPU to a validation loss: python -m bench.cpu_speedrun --text shakespeare.txt

The text is numbered by characters, and its last tenth validates, as nanoGPT's Tiny Shakespeare
does. For each mark the stage `train` runs, in a process of its own whose whole time counts: start,
training, validations, checkpoints. All marks have the same parameters; each run ends by
`train.target_loss`. Then the loss is measured again, on every sequence of the validation text, by
the function that measures nanoGPT's. The marks on Tiny Shakespeare are nanoGPT's losses with its
recipes for a CPU (1.911) and a GPU (1.4697), and two between. docs/speedrun.md has the rules and
the records.

With `--nanogpt CHECKOUT` nanoGPT's script runs first, with its recipe for a CPU, and its loss is
the mark, on any text.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.harness import ROOT, RowFile, compute_for, section
from bench.machine import processor
from bench.training import nanogpt
from bench.training.peers import CPU, TINY, Row, their_run
from bench.training.text import numbered, read_text, write_tokens
from bench.training.to_loss import mean_loss, train_stage
from tokenmill.core.paths import HISTORY
from tokenmill.model.gpt import parameter_count
from tokenmill.stage import report_errors
from tokenmill.training.history import EpochRow, read_table

MARKS = (1.911, 1.65, 1.55, 1.4697)
"""Validation losses on Tiny Shakespeare, in nats per character."""


@dataclass(frozen=True)
class Preset:
    """A training: what it changes in two sections of params.yaml."""

    model: dict[str, Any]
    train: dict[str, Any]


PRESET = Preset(
    model={
        "architecture": "speedrun",
        "n_layer": 4,
        "n_head": 4,
        "n_embd": 128,
        "context_length": 128,
    },
    train={
        "epochs": 8,
        "batch_size": 16,
        "learning_rate": 1.6e-2,
        "schedule": {"type": "power", "warmup_steps": 10, "constant_steps": 100, "power": 0.7},
        "average_power": 5,
    },
)
"""Four layers of 128 features, with rows for pairs and triples of characters."""

TINY_MARKS = (9.0,)
TINY_PRESET = Preset(
    model={"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 16},
    train={"batch_size": 8, "learning_rate": 1e-2, "epochs": 1},
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
        help=f"validation losses to reach, in nats per character; default: {MARKS}",
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
    """All marks with all seeds, or nanoGPT and its loss."""
    train, val, characters = numbered(read_text(options.text))
    preset = TINY_PRESET if options.tiny else PRESET
    marks = options.marks or (TINY_MARKS if options.tiny else MARKS)
    file = RowFile(options.json)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        text = Text(train, val, len(characters), Path(folder))
        rows = (
            against_nanogpt(options, preset, text)
            if options.nanogpt
            else (reach(preset, m, text, seed=s) for m in marks for s in options.seeds)
        )
        for row in rows:
            file.show(row)


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


def against_nanogpt(options: argparse.Namespace, preset: Preset, text: Text) -> Iterator[Row]:
    """nanoGPT's row, and that of the training that ends at its loss."""
    nanogpt.check(options.nanogpt)
    recipe = TINY if options.tiny else CPU
    theirs = their_run(options, recipe, text.new_folder("nanogpt") / "run", text.train, text.val)
    mark = theirs["validation loss"]
    yield {"who": "nanoGPT", "mark": mark, "loss": mark} | _cost(
        theirs["seconds"], theirs["tokens"]
    )
    row = reach(preset, mark, text, seed=options.seeds[0])
    yield row | {"times fewer seconds": round(theirs["seconds"] / row["seconds"], 1)}


def reach(preset: Preset, mark: float, text: Text, *, seed: int) -> Row:
    """Train until the validation loss is at most `mark`, in nats per character, or to the end."""
    here = text.new_folder("tokenmill")
    write_tokens(
        here / "data" / "tokens", train=text.train, val=text.val, vocabulary=text.vocabulary
    )
    model = section("model", dropout=0.0, **preset.model) | {"start_from": "models/random"}
    changes = preset.train | {"seed": seed, "target_loss": mark, "validation_bytes": None}
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
