"""Training against nanoGPT on the same machine and data, in one run.

    python -m bench.training.peers --nanogpt CHECKOUT --text FILE

On the CPU it uses nanoGPT's own Tiny Shakespeare recipe (4 layers, 4 heads, 128 wide, context 64,
batch 12, 2,000 steps).

  to the loss  nanoGPT's script runs unchanged, and its final model is measured on all sequences of
               the validation text. Then TokenMill's stage `train` runs until it has this loss, as
               `bench.cpu_speedrun --nanogpt` does. Seconds are those of whole processes: start-up,
               training, evaluation, checkpoints.
  steps        tokens per second at the equal model (gpt2, AdamW, float32), alternating, each in a
               process of its own; then TokenMill with its own defaults. Both uncompiled, as in a
               short run, and compiled, as in a long one.

With `--gpu`: GPT-2 124M at 64 x 512 and 16 x 1024, both compiled and in bfloat16, and nanoGPT's
loss in at most 2.5 times fewer tokens.
"""

import argparse
import dataclasses
import math
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.cpu_speedrun import SHORT
from bench.cpu_speedrun import TINY as TINY_PRESET
from bench.harness import (
    TURN_SECONDS,
    Contender,
    Steps,
    compute_for,
    show_steps,
    tokenmill_steps,
    train_params,
)
from bench.program import RowFile, command_line
from bench.training import nanogpt
from bench.training.text import numbered, read_text, spread
from bench.training.to_loss import Preset, Row, Text, against_nanogpt, reach
from tokenmill.core.errors import UserError
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import Compute, choose_device
from tokenmill.stage import report_errors
from tokenmill.training.compile import Compilation

DEFAULT = ("modern", "muon", "auto")
KINDS = (
    ("gpt2", "adamw", "equal"),
    DEFAULT,
    ("modern", "adamw", "auto"),
    ("gpt2", "adamw", "auto"),
)
"""Architecture, optimizer and precision of TokenMill's rows, those that matter most first; `equal`
is the precision of nanoGPT's."""


def steps_table(
    pairs: Iterable[tuple[str, Contender]], *, tokens_per_step: int, rounds: int, file: RowFile
) -> None:
    """Show the steps of all contenders; `auto` may be the precision of nanoGPT's, and then counts
    once."""
    contenders: dict[str, Contender] = {}
    for name, contender in pairs:
        contenders.setdefault(name, contender)
    on_gpu = torch.cuda.is_available()
    # A turn on a CPU begins with cold caches
    at_a_time, steps = (1, 10) if on_gpu else (len(contenders), 30)
    show_steps(
        contenders,
        "steps",
        file,
        rounds=rounds,
        steps=steps,
        at_a_time=at_a_time,
        seconds=TURN_SECONDS if on_gpu else math.inf,
        tokens=tokens_per_step,
    )


def _contenders(
    checkout: Path | None,
    ids: np.ndarray,
    shape: dict[str, int],
    *,
    batch: int,
    ways: tuple[bool, ...],
    kinds: Sequence[tuple[str, str, str]],
) -> Iterator[tuple[str, Contender]]:
    """Names and who they are, nanoGPT first where its checkout is given; `ways`: compiled, not, or
    both."""
    equal = "bfloat16" if torch.cuda.is_available() else "float32"
    for compiled in ways:
        end = ", compiled" if compiled and len(ways) > 1 else ""
        how = {"precision": equal, "batch": batch, "compiled": compiled}
        theirs = partial(their_steps, checkout, ids, shape, **how) if checkout else None
        if theirs:
            yield f"nanoGPT, {equal}{end}", partial(theirs, biases=True)
        for architecture, optimizer, wanted in kinds:
            precision = equal if wanted == "equal" else wanted
            name = f"TokenMill {architecture}, {optimizer}, {_called(precision)}{end}"
            model = {"architecture": architecture, "dropout": 0.0} | shape
            train = {"batch_size": batch, "optimizer": optimizer, "precision": precision}
            yield name, partial(our_steps, ids, model, train, compiled=compiled)
        if theirs:
            yield f"nanoGPT without biases, {equal}{end}", partial(theirs, biases=False)


def _called(precision: str) -> str:
    return compute_for(precision).precision_name


def their_steps(
    checkout: Path, ids: np.ndarray, shape: dict[str, int], *, precision: str, **how: Any
) -> Steps:
    """nanoGPT's, with the settings of its own script; `how` as `nanogpt.steps_of` has it."""
    device = choose_device("auto")
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        shape = shape | {"vocab_size": -(-shape["vocab_size"] // 64) * 64}
    compute = Compute(device, getattr(torch, precision))
    return nanogpt.steps_of(checkout, compute, ids, shape, **how)


def our_steps(
    ids: np.ndarray, model: dict[str, Any], train: dict[str, Any], *, compiled: bool
) -> Steps:
    """TokenMill's, of this model."""
    section = train_params(learning_rate=1e-4, beta2=0.99, **train)
    config = ModelConfig.model_validate(model)
    compute = compute_for(section.precision)
    return tokenmill_steps(
        config, section, compute, ids, compilation=Compilation(compiled, "asked for")
    )


GPU_PRESET = Preset(
    model={"architecture": "modern", "context_length": nanogpt.GPU.context} | nanogpt.GPU.sizes,
    train={
        "batch_size": 64,
        "learning_rate": 4e-3,
        "schedule": {"warmup_steps": 10, "decay_fraction": 0.8},
    },
    # Its length lies where `auto` begins to compile, and nanoGPT compiles
    runtime={"compile": "on"},
)
"""nanoGPT's size, for as many epochs as `on_gpu` says."""

TIMES_FEWER = 2.5
"""On a GPU TokenMill gets so many times fewer tokens than nanoGPT, and must reach its loss."""

GPT2_124M = {"n_layer": 12, "n_head": 12, "n_embd": 768, "vocab_size": 50257}

GPT2_SHAPES = ((64, 512), (16, 1024))
"""Sequences of a step, and the tokens of each."""


def model_124m(architecture: str, *, tiny: bool) -> tuple[ModelConfig, int]:
    """The model of GPT-2 124M's shape and the sequences of its step, those of the first of
    GPT2_SHAPES; with `tiny` next to nothing."""
    batch, context = (nanogpt.TINY.batch, nanogpt.TINY.context) if tiny else GPT2_SHAPES[0]
    sizes = nanogpt.TINY.sizes | {"vocab_size": 64} if tiny else GPT2_124M
    common = {"architecture": architecture, "dropout": 0.0, "context_length": context}
    return ModelConfig.model_validate(common | sizes), batch


def main() -> None:
    """Run what was asked for, and print."""
    parser = command_line(__doc__, tiny="a few steps of next to nothing")
    parser.add_argument(
        "--nanogpt", type=Path, help="a checkout of nanoGPT; without it TokenMill runs alone"
    )
    parser.add_argument("--text", type=Path, help="a text file; default: the built-in sample")
    parser.add_argument(
        "--gpu", action="store_true", help="GPT-2 124M on CUDA instead of the small model"
    )
    parser.add_argument("--rounds", type=int, default=8, help="turns of each contender")
    parser.add_argument(
        "--shape", type=int, nargs=2, metavar=("BATCH", "CONTEXT"), help="steps of this shape only"
    )
    parser.add_argument("--skip-loss", action="store_true", help="only steps")
    parser.add_argument("--skip-steps", action="store_true", help="only what it takes to the loss")
    options = parser.parse_args()
    report_errors(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """The whole benchmark."""
    if options.gpu and not torch.cuda.is_available():
        raise UserError("--gpu needs a CUDA device, and there is none here.")
    if options.nanogpt is None:
        print(
            "no --nanogpt PATH: TokenMill runs alone, nothing is compared (git clone "
            "github.com/karpathy/nanoGPT)"
        )
    else:
        nanogpt.check(options.nanogpt)
    train, val, characters = numbered(read_text(options.text))
    recipe = nanogpt.TINY if options.tiny else nanogpt.GPU if options.gpu else nanogpt.CPU
    file = RowFile(options.json)
    shapes = GPT2_SHAPES if options.gpu else ((recipe.batch, recipe.context),)
    if options.shape:
        shapes = (options.shape,)
    for batch, context in () if options.skip_steps else shapes:
        model = GPT2_124M if options.gpu else recipe.sizes | {"vocab_size": len(characters)}
        contenders = _contenders(
            options.nanogpt,
            train,
            model | {"context_length": context},
            batch=batch,
            ways=(True,) if options.gpu else (False,) if options.tiny else (False, True),
            kinds=(DEFAULT,) if options.tiny else KINDS,
        )
        rounds = 1 if options.tiny else options.rounds
        steps_table(contenders, tokens_per_step=batch * context, rounds=rounds, file=file)
    if not options.skip_loss:
        with tempfile.TemporaryDirectory() as folder:
            text = Text(train, val, len(characters), Path(folder))
            for row in to_the_loss(options, recipe, text):
                file.show(row)


def to_the_loss(options: argparse.Namespace, recipe: nanogpt.Recipe, text: Text) -> Iterator[Row]:
    """What both need, and what it led to. TokenMill alone trains to the first mark of its preset,
    or to the end."""
    preset = TINY_PRESET if options.tiny else SHORT
    ours = text
    if recipe is nanogpt.GPU:
        preset, ours = on_gpu(text)
    if options.nanogpt:
        yield from against_nanogpt(options.nanogpt, recipe, preset, text, ours=ours)
    else:
        yield reach(preset, next(iter(preset.marks), None), ours, seed=0)


def on_gpu(text: Text) -> tuple[Preset, Text]:
    """TokenMill's training on a GPU, and its part of the text: together `TIMES_FEWER` times fewer
    tokens than nanoGPT sees."""
    tokens = nanogpt.GPU.tokens / TIMES_FEWER
    epochs = math.ceil(tokens / len(text.train))
    part = spread(text.train, tokens / epochs / len(text.train))
    preset = dataclasses.replace(GPU_PRESET, train=GPU_PRESET.train | {"epochs": epochs})
    return preset, dataclasses.replace(text, train=part)


if __name__ == "__main__":
    main()
