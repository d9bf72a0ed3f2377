"""`tokenmill`: what a person asks about the pipeline; running it is `dvc repro`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenmill import stage
from tokenmill.commands import reference, summary
from tokenmill.errors import UserError
from tokenmill.files import write_text
from tokenmill.schema import check_all


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one subcommand; a user's error is one sentence on stderr and exit code 1."""
    options = _parser().parse_args(arguments)
    stage.report_errors(lambda: options.run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tokenmill", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add = commands.add_parser("summary", help="what the pipeline made, the losses, the answers, what to type next")
    add.set_defaults(run=_summary)
    add = commands.add_parser("params", help="check params.yaml; print or write the reference of every parameter")
    add.add_argument("--write", type=Path, metavar="FILE", help="write the reference to FILE")
    add.add_argument("--check", type=Path, metavar="FILE", help="fail if FILE is not the reference")
    add.set_defaults(run=_params)
    return parser


def _summary(_: argparse.Namespace) -> None:
    print(summary.render(Path()))


def _params(options: argparse.Namespace) -> None:
    text = reference.render(check_all())
    if options.check:
        if not options.check.exists() or options.check.read_text(encoding="utf-8") != text:
            raise UserError(f"{options.check} is out of date; run `make format`.")
    elif options.write:
        write_text(options.write, text)
    else:
        sys.stdout.write(text)
