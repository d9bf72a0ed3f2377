"""`tokenmill params`."""

import argparse
import sys
from pathlib import Path

from tokenmill.cli.arguments import Commands, add_command, add_file
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_text

EXAMPLES = """\
  tokenmill params                                 every parameter with its range and its meaning
  tokenmill params --write docs/parameters.md      the same into a file
"""


def add(commands: Commands) -> None:
    """Add the command."""
    add = add_command(
        commands,
        "params",
        _run,
        help_="check params.yaml; print or write the reference of every parameter",
        examples=EXAMPLES,
    )
    add_file(add, "--write", type=Path, metavar="FILE", help="write the reference to FILE")
    add_file(add, "--check", type=Path, metavar="FILE", help="fail if FILE is not the reference")


def _run(options: argparse.Namespace) -> None:
    from tokenmill.commands import reference  # noqa: PLC0415 (the other commands start without it)

    text = reference.render()
    if options.check:
        if not options.check.exists() or options.check.read_text(encoding="utf-8") != text:
            raise UserError(f"{options.check} is out of date; run `make format`.")
    elif options.write:
        write_text(options.write, text)
    else:
        sys.stdout.write(text)
