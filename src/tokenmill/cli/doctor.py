"""`tokenmill doctor`."""

import argparse
import sys
from pathlib import Path

from tokenmill.cli.arguments import Commands, add_command

EXAMPLES = """\
  tokenmill doctor                       before the first run, and when something is strange
  tokenmill doctor && dvc repro          run only where nothing stands in the way
"""


def add(commands: Commands) -> None:
    """Add the command."""
    help_ = "what stands in the way of a run: environment, device, disk, DVC, git, and the command that fixes it"
    add_command(commands, "doctor", _run, help_=help_, examples=EXAMPLES)


def _run(_: argparse.Namespace) -> None:
    from tokenmill.commands import doctor  # noqa: PLC0415 (DVC takes a moment to load)

    if doctor.show(Path(), sys.stdout):
        sys.exit(1)
