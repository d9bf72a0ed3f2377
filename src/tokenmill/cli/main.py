"""`tokenmill`: what a person asks about the pipeline; running it is `dvc repro`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tokenmill import stage
from tokenmill.cli import compare, completion, demo, doctor, generate, params, plan, preset, profile, summary
from tokenmill.cli.arguments import Parser

EPILOG = """\
without a command it says where this project stands and what to type next

examples:
  dvc repro                             run the pipeline, or what a change touches of it
  dvc exp run -S model.n_layer=12       an experiment
  tokenmill generate                    chat with the model
  tokenmill demo                        the same in the browser
  tokenmill compare                     epochs or experiments side by side
  tokenmill doctor                      is everything here that a run needs?
  tokenmill plan --hardware A100        what a training would take
  tokenmill COMMAND --help              more of a command, with examples

exit codes:
  0      done; of `doctor`: nothing that stops a run
  1      an error, with a sentence that says the way out; of `doctor`: there is a problem
  2      a command line that is not understood
  130    interrupted by Ctrl-C
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one subcommand; a user's error is one sentence on stderr and exit code 1."""
    options = parser().parse_args(arguments)
    stage.report_errors(lambda: options.run(options))


def parser() -> Parser:
    """The whole command line."""
    whole = Parser(
        prog="tokenmill",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.set_defaults(run=_next_step)
    commands = whole.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for command in (summary, compare, generate, demo, plan, preset, profile, doctor, params, completion):
        command.add(commands)
    return whole


def _next_step(_: argparse.Namespace) -> None:
    from tokenmill.commands import next_step  # noqa: PLC0415 (it looks into DVC, which takes a moment to load)

    print(next_step.render(Path()))
