"""`tokenmill summary`."""

import argparse
from pathlib import Path

from tokenmill.cli.arguments import Commands, add_command

EXAMPLES = """\
  tokenmill summary    after `dvc repro`
"""


def add(commands: Commands) -> None:
    """Add the command."""
    add_command(
        commands,
        "summary",
        _run,
        help_="what the pipeline made, the losses, the answers, what to type next",
        examples=EXAMPLES,
    )


def _run(_: argparse.Namespace) -> None:
    from tokenmill.commands import summary  # noqa: PLC0415 (the other commands start without it)

    print(summary.render(Path()))
