"""`tokenmill compare`."""

import argparse
import os
import shutil
import sys
from pathlib import Path

from tokenmill.cli.arguments import Commands, add_command

EXAMPLES = """\
  tokenmill compare                     the first and the last epoch
  tokenmill compare epoch-1 epoch-4     any epochs of the run in the workspace
  tokenmill compare HEAD                the last commit and the workspace
  tokenmill compare HEAD~1 blest-jube   commits, branches, tags, experiments (`dvc exp show` names them)
  tokenmill compare main:2 workspace:2  their second epochs
"""


def add(commands: Commands) -> None:
    """Add the command."""
    command = add_command(
        commands,
        "compare",
        _run,
        help_="losses, parameters and answers of epochs and experiments side by side, here and as a page",
        examples=EXAMPLES,
    )
    command.add_argument(
        "names",
        nargs="*",
        metavar="REV",
        help="workspace, epoch-N, a git revision or a DVC experiment; REV:N is its epoch N (the last if not said)",
    )


def _run(options: argparse.Namespace) -> None:
    from tokenmill.commands.compare import compare  # noqa: PLC0415  (loads DVC and pandas)

    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print(compare(Path(), options.names, width=shutil.get_terminal_size().columns, colours=colours))
