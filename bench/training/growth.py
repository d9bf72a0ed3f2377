"""How a training step grows with the model, on a CPU: python -m bench.training.growth

Models of 0.7 to 135 million parameters make steps of 1,024 tokens (4 sequences of 256, drawn at
random, vocabulary 1,024). TokenMill trains as nanoGPT does (`gpt2`, AdamW, float32), and by its own
defaults; with `--nanogpt CHECKOUT` nanoGPT's model and optimizer take turns with it. Each has a
process of its own. Nothing is compiled.

The exponent says how the seconds grow with the operations of a step: 1 is in proportion.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness import Contender, Timed, first_that_ran, measure
from bench.program import RowFile, command_line, exponents
from bench.training import nanogpt
from bench.training.peers import our_steps, their_steps
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import parameter_count
from tokenmill.planning.fit import heads_for
from tokenmill.stage import report_errors
from tokenmill.training.size import flops_per_token
from tokenmill.words.units import si

VOCABULARY = 1024
CONTEXT = 256
BATCH = 4

OURS = {
    "TokenMill, gpt2, adamw, float32": ("gpt2", "adamw", "float32"),
    "TokenMill, modern, muon": ("modern", "muon", "auto"),
}
NANOGPT = "nanoGPT, float32"


@dataclass(frozen=True)
class Size:
    """A model on the way up."""

    n_layer: int
    n_embd: int
    steps: int
    """The steps of a turn: about a second or more."""

    @property
    def shape(self) -> dict[str, int]:
        """The model's sizes under their names in params.yaml."""
        return {
            "n_layer": self.n_layer,
            "n_head": heads_for(self.n_embd),
            "n_embd": self.n_embd,
            "context_length": CONTEXT,
            "vocab_size": VOCABULARY,
        }

    @property
    def config(self) -> ModelConfig:
        """The model `gpt2` of this size, by which parameters and operations are counted."""
        return ModelConfig.model_validate(self.shape | {"architecture": "gpt2", "dropout": 0.0})


SIZES = (
    Size(2, 128, 16),
    Size(4, 192, 8),
    Size(6, 384, 4),
    Size(8, 512, 2),
    Size(12, 768, 1),
    Size(12, 960, 1),
)
TINY_SIZES = (Size(1, 32, 1), Size(2, 64, 1))
"""To see that the benchmark runs."""


def main() -> None:
    """Run what was asked for, and print a table."""
    parser = command_line(__doc__, tiny="two small models")
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender")
    options = parser.parse_args()
    report_errors(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """Time all sizes, the smallest first."""
    if options.nanogpt:
        nanogpt.check(options.nanogpt)
    sizes = TINY_SIZES if options.tiny else SIZES
    file = RowFile(options.json)
    for size in sizes:
        contenders = contenders_of(size, options.nanogpt)
        timed = measure(
            contenders, rounds=options.rounds, steps=size.steps, at_a_time=len(contenders)
        )
        for row in rows_of(size, timed):
            file.show(row)
    grown = exponents(file.rows, ["who"], size="operations a step", took="seconds a step")
    for (name,), exponent in grown.items():
        print(f"{name}: seconds grow with the operations to the power {exponent:.2f}")


def contenders_of(size: Size, checkout: Path | None) -> dict[str, Contender]:
    """Who takes part, nanoGPT first where its checkout is given."""
    ids = np.random.default_rng(0).integers(VOCABULARY, size=1 << 17).astype(np.int32)
    found = {}
    if checkout:
        how: dict[str, Any] = {"precision": "float32", "batch": BATCH, "compiled": False}
        theirs = partial(their_steps, checkout, ids, size.shape, biases=True, **how)
        found[NANOGPT] = theirs
    for name, (architecture, optimizer, precision) in OURS.items():
        model = size.shape | {"architecture": architecture, "dropout": 0.0}
        train = {"batch_size": BATCH, "optimizer": optimizer, "precision": precision}
        found[name] = partial(our_steps, ids, model, train, compiled=False)
    return found


def rows_of(size: Size, timed: dict[str, Timed]) -> Iterator[dict[str, Any]]:
    """A row for each contender at one size."""
    first = first_that_ran(timed.values())
    operations = flops_per_token(size.config) * BATCH * CONTEXT
    for name, one in timed.items():
        row: dict[str, Any] = {
            "who": name,
            "parameters": parameter_count(size.config),
            "operations a step": operations,
        } | one.row(first)
        if not one.failed:
            row["operations/s"] = si(operations / one.seconds)
            row["peak MB"] = one.peak_bytes // 1_000_000
        yield row


if __name__ == "__main__":
    main()
