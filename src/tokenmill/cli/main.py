"""`tokenmill`: what a person asks about the pipeline; running it is `dvc repro`."""

import argparse
from collections.abc import Sequence

from tokenmill import stage
from tokenmill.cli import params, plan, profile, summary


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one subcommand; a user's error is one sentence on stderr and exit code 1."""
    options = parser().parse_args(arguments)
    stage.report_errors(lambda: options.run(options))


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    whole = argparse.ArgumentParser(prog="tokenmill", description=__doc__)
    commands = whole.add_subparsers(required=True, metavar="COMMAND")
    for command in (summary, params, plan, profile):
        command.add(commands)
    return whole
