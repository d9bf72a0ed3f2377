"""`tokenmill plan`."""

import argparse
from pathlib import Path

from tokenmill.cli.arguments import Commands, add_command, count, positive
from tokenmill.openmp import sleep_soon_beside_others
from tokenmill.planning.hardware import UTILISATION
from tokenmill.planning.presets import names

EXAMPLES = """\
  tokenmill plan                                  the training in params.yaml, on the tokens there are
  tokenmill plan --hardware here                  the same, by some steps measured on this machine now
  tokenmill plan --preset phase3                  a known configuration, without writing it (`tokenmill preset`)
  tokenmill plan --tokens 2.8e9 --vocab-size 32000 -S model.n_layer=12 -S model.n_embd=768 -S model.n_head=12
  tokenmill plan --hardware A100 H100 --devices 8 --price-per-hour 2
  tokenmill plan --hardware A100 --step-seconds 0.1    what share of the peak that would be
"""


HARDWARE = "GPUs to plan for, else all known; `here` measures this machine for some seconds"


def add(commands: Commands) -> None:
    """Add the command."""
    add = add_command(
        commands,
        "plan",
        _run,
        help_="what a training would take: parameters, steps, memory, hours, money; runs nothing",
        examples=EXAMPLES,
    )
    add.add_argument(
        "--preset", choices=names(), metavar="PRESET", help=f"instead of params.yaml: {', '.join(names())}"
    )
    add.add_argument("--tokens", type=positive, metavar="N", help="tokens to train on; else those of data/tokens")
    add.add_argument("--vocab-size", type=count, metavar="N", help="entries of the tokenizer; else the present one's")
    add.add_argument("--hardware", nargs="+", default=[], metavar="NAME", help=HARDWARE)
    add.add_argument("--devices", type=count, default=1, metavar="N", help="GPUs in one machine (default 1)")
    add.add_argument(
        "--utilisation",
        type=positive,
        default=UTILISATION,
        metavar="X",
        help=f"share of the peak (default {UTILISATION})",
    )
    add.add_argument("--step-seconds", type=positive, metavar="S", help="say what share of the peak such a step is")
    add.add_argument("--price-per-hour", type=positive, metavar="X", help="of one GPU, in runtime.cost.currency")
    add.add_argument("-S", dest="changes", action="append", default=[], metavar="NAME=VALUE", help="another parameter")
    add.add_argument("--table", action="store_true", help="print the table of docs/scale.md instead")


def _run(options: argparse.Namespace) -> None:
    sleep_soon_beside_others()
    from tokenmill.commands import plan, scale_table  # noqa: PLC0415 (PyTorch takes seconds to load)

    asked = {name: value for name, value in vars(options).items() if name not in ("run", "table", "command")}
    print(scale_table.render() if options.table else plan.render(Path(), plan.Wish(**asked)))
