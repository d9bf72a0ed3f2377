"""The climb from 1.6 s a step to 0.1, again, as real code on one model and one text: `python -m bench.ladder`.

TokenMill began as a script on an A100 whose steps took 1.6 s; what made them shorter, one by one, is replayed here:

  memory map   tokens read from a file map in a Python loop, a sequence at a time; float32, plain attention
  RAM          the same from memory
  vectorised   a batch by one index
  compiled     torch.compile
  mixed        matrix products in bfloat16
  flash        scaled_dot_product_attention
  TokenMill    its own step: the same model with AdamW, and then its default, `modern` with Muon

Small on a CPU; on a GPU at full size (134M: 12 layers, 12 heads, 768 wide, vocabulary 32,000, batch 64, context 512).
Each rung has a process of its own and is warm when it is measured; what its first step took, compilation included,
stands in a column of its own. On a CPU all take turns, so that other load disturbs all alike; a GPU has one at a time.
"""

import argparse
import json
import os
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch

from bench.ladder_table import draw, print_table, rows_of
from bench.rungs import FULL, OURS, RUNGS, SMALL, TINY, here, left_out, make
from bench.stepping import compute_for
from bench.turns import Rival, Timed, measure
from tokenmill.planning.hardware import peak_flops
from tokenmill.planning.profile import product_rate
from tokenmill.stage import report_errors


def main() -> None:
    """Climb, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="next to nothing, not compiled: only to see that it runs")
    parser.add_argument("--only", nargs="+", choices=RUNGS, default=RUNGS, metavar="RUNG", help="measure only these")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each rung; their median counts")
    parser.add_argument("--peak-tflops", type=float, help="the device's peak, if it is not known")
    parser.add_argument("--picture", type=Path, default=Path("ladder.svg"))
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    report_errors(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """The whole ladder."""
    device = here()
    size = TINY if options.tiny else FULL if device.type == "cuda" else SMALL
    reasons = {name: reason for name in options.only if (reason := left_out(name, device))}
    ids = np.random.default_rng(0).integers(size.vocab_size, size=size.batch * size.context_length * 64).astype("<u2")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        ids.tofile(path)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/compiled"  # what an earlier run compiled is no help
        rivals = {
            name: Rival(partial(make, name, size, path), is_stage=name in OURS)
            for name in options.only
            if name not in reasons
        }
        at_a_time = 1 if device.type == "cuda" else len(rivals)
        climbed = measure(rivals, rounds=options.rounds, steps=size.steps, at_a_time=at_a_time)
    found = {name: Timed(failed=reason) for name, reason in reasons.items()} | climbed
    peak, whose = _peak(device, options.peak_tflops)
    rows = rows_of({name: found[name] for name in options.only}, size, peak)
    compute = compute_for("auto")
    print(f"{compute.name}: {size.batch} sequences of {size.context_length}, GPT-2 of {size.n_layer} layers, ", end="")
    print(f"{size.n_embd} wide; utilisation of {peak / 1e12:.3g}e12 operations a second, {whose}")
    print_table(rows)
    draw(rows, compute.name, options.picture)
    print(f"drawn: {options.picture}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def _peak(device: torch.device, given: float | None) -> tuple[float, str]:
    """Operations a second that utilisation is a share of, and where they come from."""
    if given:
        return given * 1e12, "as given"
    if known := peak_flops(device):
        return known, "its data sheet's peak in half precision"
    return product_rate(compute_for("auto")), "which one product of large matrices reaches here"


if __name__ == "__main__":
    main()
