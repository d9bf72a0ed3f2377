"""`tokenmill profile`."""

import argparse
from pathlib import Path

from tokenmill.cli.arguments import Commands, add_command, add_file, count
from tokenmill.openmp import sleep_soon_beside_others

EXAMPLES = """\
  tokenmill profile                     twenty steps of the training in params.yaml
  tokenmill profile --steps 100 --trace /tmp/trace.json

Open the trace in chrome://tracing or https://ui.perfetto.dev.
"""


def add(commands: Commands) -> None:
    """Add the command."""
    add = add_command(
        commands,
        "profile",
        _run,
        help_="what binds a training step: data, Python, memory bandwidth or compute; touches no checkpoint",
        examples=EXAMPLES,
    )
    add.add_argument("--steps", type=count, default=20, metavar="N", help="steps to profile (default 20)")
    trace = Path("reports/trace.json")
    add_file(add, "--trace", type=Path, default=trace, metavar="FILE", help=f"where the trace goes (default {trace})")


def _run(options: argparse.Namespace) -> None:
    sleep_soon_beside_others()
    from tokenmill.commands import profile  # noqa: PLC0415 (PyTorch takes seconds to load)

    print(profile.render(Path(), steps=options.steps, trace=options.trace))
