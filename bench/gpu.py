"""Every figure that needs a GPU in one command: `make bench-gpu NANOGPT=PATH TEXT=PATH`.

The ladder at full size with its utilisation; GPT-2 124M against nanoGPT at both shapes; tokens to nanoGPT's loss on the
text (give a real one of tens of MB; nanoGPT's other published configuration runs to its end, which takes a while).
"""

import argparse
from pathlib import Path

import torch

from bench import ladder, peers
from tokenmill.errors import UserError
from tokenmill.stage import report_errors


def main() -> None:
    """Run the ladder, then the peers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT; without it TokenMill runs alone")
    parser.add_argument("--text", type=Path, help="a text file; default: the built-in sample")
    parser.add_argument("--peak-tflops", type=float, help="the device's peak in bfloat16, if it is not known")
    parser.add_argument("--picture", type=Path, default=Path("ladder.svg"))
    options = parser.parse_args()
    report_errors(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """All of it.

    Raises:
        UserError: there is no CUDA device.
    """
    if not torch.cuda.is_available():
        raise UserError("these benchmarks need a CUDA device, and torch sees none here; bench.peers runs on a CPU too.")
    own = {"tiny": False, "no_compile": False, "gpu": True, "skip_loss": False, "rounds": 8, "json": None}
    everything = argparse.Namespace(**vars(options), **own)
    ladder.run(everything)
    peers.run(everything)


if __name__ == "__main__":
    main()
