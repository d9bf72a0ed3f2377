"""The climb from 1.6 s a step to 0.1, again, as real code on one model and one text.

    python -m bench.training.ladder

TokenMill began as a script on an A100 whose steps took 1.6 s; what made them shorter, one by one,
is replayed here:

  memory map   tokens read from a file map in a Python loop, a sequence at a time; float32, plain
               attention
  RAM          the same from memory
  vectorised   a batch by one index
  compiled     torch.compile
  mixed        matrix products in bfloat16
  flash        scaled_dot_product_attention
  TokenMill    its own step: the same model with AdamW, and then its default, `modern` with Muon

Small on a CPU; on a GPU at full size (134M: 12 layers, 12 heads, 768 wide, vocabulary 32,000, batch
64, context 512). Each variant has a process of its own and is warm when it is measured; what its
first step took, compilation included, stands in a column of its own. On a CPU all take turns, so
that other load disturbs all alike; a GPU has one at a time, TokenMill first, and each for some
seconds only.
"""

import argparse
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.harness import TURN_SECONDS, Timed, compute_for, here, measure
from bench.program import RowFile, command_line
from bench.training.variants import FULL, OURS, PLAIN, SMALL, TINY, VARIANTS, Size, left_out, make
from tokenmill.display import print_columns
from tokenmill.hardware import peak_flops
from tokenmill.planning.benchmark import product_rate
from tokenmill.stage import report_errors
from tokenmill.training.size import flops_per_token

ORIGINAL = dict(zip(PLAIN, (1.6, 0.8, 0.5, 0.35, 0.225, 0.1), strict=True))
"""Seconds a step of the original script on an A100, variant by variant."""

ORDER = (*OURS, PLAIN[0], *reversed(PLAIN[1:]))
"""Who is measured first: TokenMill, and what it is compared with."""

Row = dict[str, Any]


def rows_of(
    names: Sequence[str], climbed: Mapping[str, Timed], size: Size, peak: float
) -> list[Row]:
    """A row for each variant of `names` that was there; one that was left out has the reason
    instead of times. All are compared with the first one, once it was there."""
    rows: list[Row] = []
    found = [(name, climbed.get(name)) for name in names]
    bottom = next((one for _, one in found if one is None or not one.failed), None)
    tokens = size.batch * size.context_length
    for name, one in found:
        if one is None:
            continue
        row: Row = {"variant": name} | one.row(bottom, tokens=tokens)
        if not one.failed:
            operations = flops_per_token(size.config(name)) * tokens
            row["utilisation"] = round(operations / one.seconds / peak, 4)
        if name in ORIGINAL:
            row["original, s"] = ORIGINAL[name]
            row["original, times"] = round(ORIGINAL["memory map"] / ORIGINAL[name], 1)
        rows.append(row)
    return rows


def print_table(rows: list[Row]) -> None:
    """One line a variant, then a sentence for each that was left out."""
    columns = (
        "variant",
        "seconds a step",
        "tokens/s",
        "utilisation",
        "times the first",
        "first step, s",
    )
    columns = tuple(
        name
        for name in (*columns, "original, s", "original, times")
        if any(name in row for row in rows)
    )
    cells = [[_cell(name, row.get(name)) for name in columns] for row in rows]
    print_columns([columns, *cells], right=range(1, len(columns)))
    for row in rows:
        if reason := row.get("left out"):
            print(f"left out: {row['variant']}: {reason}")


def _cell(column: str, value: Any) -> str:
    if value is None:
        return ""
    if column == "utilisation":
        return f"{value:.1%}"
    return f"{value:,}" if column == "tokens/s" else str(value)


def main() -> None:
    """Climb, print."""
    parser = command_line(__doc__, tiny="next to nothing, not compiled")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=VARIANTS,
        default=VARIANTS,
        metavar="NAME",
        help="measure only these",
    )
    parser.add_argument(
        "--rounds", type=int, default=9, help="turns of each variant; their median counts"
    )
    parser.add_argument("--peak-tflops", type=float, help="the device's peak, if it is not known")
    options = parser.parse_args()
    report_errors(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """The whole ladder."""
    device = here()
    size = TINY if options.tiny else FULL if device.type == "cuda" else SMALL
    peak, whose = _peak(device, options.peak_tflops)
    file = RowFile(options.json)
    reasons = {name: reason for name in options.only if (reason := left_out(name, device))}
    ids = (
        np.random.default_rng(0)
        .integers(size.vocab_size, size=size.batch * size.context_length * 64)
        .astype("<u2")
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        ids.tofile(path)
        # What an earlier run compiled is no help
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/compiled"
        contenders = {
            name: partial(make, name, size, path)
            for name in sorted(options.only, key=ORDER.index)
            if name not in reasons
        }
        on_gpu = device.type == "cuda"

        def write(climbed: Mapping[str, Timed]) -> None:
            found = {name: Timed(failed=reason) for name, reason in reasons.items()} | dict(climbed)
            file.replace(rows_of(options.only, found, size, peak))

        measure(
            contenders,
            rounds=options.rounds,
            steps=size.steps,
            at_a_time=1 if on_gpu else len(contenders),
            seconds=TURN_SECONDS if on_gpu else math.inf,
            done=write,
        )
    compute = compute_for("auto")
    print(
        f"{compute.name}: {size.batch} sequences of {size.context_length}, GPT-2 of "
        f"{size.n_layer} layers, ",
        end="",
    )
    print(f"{size.n_embd} wide; utilisation of {peak / 1e12:.3g}e12 operations a second, {whose}")
    print_table(file.rows)


def _peak(device: torch.device, given: float | None) -> tuple[float, str]:
    """Operations a second that utilisation is a share of, and where they come from."""
    if given:
        return given * 1e12, "as given"
    if known := peak_flops(device):
        return known, "its data sheet's peak in half precision"
    return product_rate(compute_for("auto")), "which one product of large matrices reaches here"


if __name__ == "__main__":
    main()
