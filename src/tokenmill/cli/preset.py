"""`tokenmill preset`."""

import argparse
import sys
from pathlib import Path

from tokenmill.cli.arguments import Commands, add_command
from tokenmill.planning.presets import names

EXAMPLES = """\
  tokenmill preset                    what presets there are, and what they would take
  tokenmill preset phase1             show what would change in params.yaml, then ask
  tokenmill preset phase3 --yes       write without asking
  tokenmill preset default --yes      back to the values that this repository came with
  tokenmill plan --preset phase3      what it would take, without writing anything

What to read (`data`), how to ask (`evaluate`) and how to run (`runtime`) stay as they are.
"""


def add(commands: Commands) -> None:
    """Add the command."""
    add = add_command(
        commands, "preset", _run, help_="put a known configuration into params.yaml, or list them", examples=EXAMPLES
    )
    add.add_argument("name", nargs="?", choices=names(), metavar="PRESET", help=f"one of {', '.join(names())}")
    add.add_argument("--yes", action="store_true", help="write without asking")


def _run(options: argparse.Namespace) -> None:
    if options.name is None:
        from tokenmill.commands import preset_table  # noqa: PLC0415 (PyTorch takes seconds to load)

        print(preset_table.render(Path()))
        return
    from tokenmill.commands import preset  # noqa: PLC0415

    preset.put(options.name, yes=options.yes, out=sys.stdout)
