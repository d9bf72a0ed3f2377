"""Seconds on a CPU to a validation loss: python -m bench.cpu_speedrun --text shakespeare.txt

The text is numbered by characters, and its last tenth validates, as nanoGPT's Tiny Shakespeare
does. For each mark the stage `train` runs, in a process of its own whose whole time counts: start,
training, validations, checkpoints. Each run ends by `train.target_loss`. Then the loss is measured
again, on every sequence of the validation text, by the function that measures nanoGPT's. The marks
on Tiny Shakespeare are nanoGPT's losses with its recipes for a CPU (1.911) and a GPU (1.4697), and
two between, for which one preset trains; and 1.44, with a preset of its own. docs/speedrun.md has
the rules and the records.

With `--nanogpt CHECKOUT` nanoGPT's script runs first, with its recipe for a CPU, and its loss is
the mark, on any text.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from bench.harness import compute_for
from bench.machine import processor
from bench.program import ROOT, RowFile, command_line
from bench.training import nanogpt
from bench.training.text import numbered, read_text
from bench.training.to_loss import Preset, Row, Text, against_nanogpt, reach
from tokenmill.stage import report_errors

SHORT = Preset(
    marks=(1.911, 1.65, 1.55, 1.4697),
    model={
        "architecture": "speedrun",
        "n_layer": 1,
        "n_head": 4,
        "n_embd": 128,
        "context_length": 128,
    },
    train={
        "epochs": 8,
        "batch_size": 16,
        "learning_rate": 1.6e-2,
        "schedule": {"type": "power", "warmup_steps": 5, "constant_steps": 50, "power": 0.7},
        "average_power": 5,
    },
)
"""One layer of 128 features, with rows for pairs and triples of characters: for these marks more
layers learn no more from a step."""

LONG = Preset(
    marks=(1.44,),
    model=SHORT.model | {"n_layer": 3, "context_length": 256},
    train={
        "epochs": 20,
        "batch_size": 8,
        "learning_rate": 1.6e-2,
        "schedule": {"type": "power", "warmup_steps": 10, "constant_steps": 50, "power": 0.6},
        "average_power": 8,
    },
)
"""Three layers over twice as many characters at a time, with a rate that stays higher."""

TINY = Preset(
    marks=(9.0,),
    model={"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 16},
    train={"batch_size": 8, "learning_rate": 1e-2, "epochs": 1},
)
"""To see that the benchmark runs."""


def preset_for(mark: float) -> Preset:
    """The shortest training that is meant to reach the mark, or else the longest."""
    return next((each for each in (SHORT, LONG) if each.marks[-1] <= mark), LONG)


def main() -> None:
    """Run what was asked for, and print a table."""
    parser = command_line(__doc__, tiny="one small model")
    parser.add_argument("--text", type=Path, help="a text file; default: the built-in sample")
    parser.add_argument(
        "--nanogpt", type=Path, help="a checkout of nanoGPT, whose loss on the text is the mark"
    )
    parser.add_argument(
        "--marks",
        type=float,
        nargs="+",
        help=f"validation losses to reach, in nats per character; default: {SHORT.marks}; "
        f"there is also a training for {LONG.marks}",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[0],
        help="train with each of them; with --nanogpt, with the first one",
    )
    options = parser.parse_args()
    report_errors(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """All marks with all seeds, or nanoGPT and its loss."""
    train, val, characters = numbered(read_text(options.text))
    file = RowFile(options.json)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(options, Text(train, val, len(characters), Path(folder))):
            file.show(row)


def rows(options: argparse.Namespace, text: Text) -> Iterator[Row]:
    """A row for each training."""
    if options.nanogpt:
        nanogpt.check(options.nanogpt)
        recipe, preset = (nanogpt.TINY, TINY) if options.tiny else (nanogpt.CPU, SHORT)
        yield from against_nanogpt(options.nanogpt, recipe, preset, text, seed=options.seeds[0])
        return
    for mark in options.marks or (TINY if options.tiny else SHORT).marks:
        for seed in options.seeds:
            yield reach(TINY if options.tiny else preset_for(mark), mark, text, seed=seed)


def machine() -> str:
    """A line about what the figures were measured on: processor, threads, versions, commit."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    compute = compute_for("auto")
    kind = compute.precision_name
    return (
        f"{processor()}, {torch.get_num_threads()} threads, {kind}, "
        f"PyTorch {torch.__version__}, commit {commit or 'unknown'}"
    )


if __name__ == "__main__":
    main()
