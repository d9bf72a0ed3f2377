"""`tokenmill compare`: epochs and experiments side by side, in the terminal and as reports/compare.html."""

import argparse
import os
import shutil
import sys
from pathlib import Path

from tokenmill.cli.main import Parser
from tokenmill.core.files import write_text

PAGE = Path("reports/compare.html")

EXAMPLES = """\
  tokenmill compare                     the first and the last epoch
  tokenmill compare epoch-1 epoch-4     any epochs of the run in the workspace
  tokenmill compare HEAD                the last commit and the workspace
  tokenmill compare HEAD~1 blest-jube   commits, branches, tags, experiments (`tokenmill runs` names them)
  tokenmill compare main:2 workspace:2  their second epochs
"""


def add_arguments(parser: Parser) -> None:
    """What to compare."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="REV",
        help="workspace, epoch-N, a git revision or a DVC experiment; REV:N is its epoch N (default: its last epoch)",
    )


def run(options: argparse.Namespace) -> None:
    """Print the comparison and write the page."""
    from tokenmill.runs.comparison import Comparison, find_epochs  # noqa: PLC0415 (pandas)
    from tokenmill.runs.side_by_side import render_page, render_terminal  # noqa: PLC0415

    comparison = Comparison(find_epochs(Path(), options.names))
    write_text(PAGE, render_page(comparison))
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print(render_terminal(comparison, width=shutil.get_terminal_size().columns, colours=colours))
    print(f"\nas a page: {PAGE}")
