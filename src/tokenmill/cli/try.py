"""`tokenmill try`: the first hour in one command. It fits a model to a text, runs the pipeline, and
opens the report.

It does what one can type: `tokenmill fit PATH --minutes 3`, `dvc repro`, `tokenmill summary`.
"""

import argparse
import signal
import subprocess
import sys
import webbrowser
from pathlib import Path

from tokenmill import git
from tokenmill.cli import summary
from tokenmill.cli.fit import params_for, propose
from tokenmill.cli.main import Parser, positive
from tokenmill.cli.preset import offer
from tokenmill.core.errors import UserError
from tokenmill.core.paths import RUN_REPORT
from tokenmill.display import say

EXAMPLES = """\
  tokenmill try ~/texts                  three minutes of training, then the report
  tokenmill try book.txt --minutes 20    a larger model

The values go into params.yaml, without a question if it is as in the last commit, and `dvc repro`
runs the pipeline. Only training is counted; cleaning and evaluation come on top.
`git checkout HEAD . && dvc checkout` brings back the last commit with its model.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the text and the time."""
    parser.add_argument(
        "path", metavar="PATH", help="a file or folder of text, or s3://bucket/prefix"
    )
    parser.add_argument(
        "--minutes", type=positive, default=3.0, metavar="N", help="of training (default 3)"
    )
    parser.add_argument(
        "--yes", action="store_true", help="write params.yaml without asking, also over your edits"
    )


def run(options: argparse.Namespace) -> None:
    """Fit, train, summarize, and open the report in the browser if this is a terminal."""
    values, _ = propose(params_for(options.path), seconds=60 * options.minutes)
    edited = git.ask(Path(), "diff", "--quiet", "HEAD", "--", "params.yaml") is None
    if not offer(values, "fit", yes=options.yes or not edited):
        sys.exit(1)
    say("dvc repro")
    if code := passed_through([sys.executable, "-m", "dvc", "repro"]):
        raise UserError(
            f"`dvc repro` ended with exit code {code} and says above why; typed again, it goes on "
            "from there."
        )
    summary.print_summary()
    page = RUN_REPORT.resolve()
    say(f"\nthe whole run on a page: {page}")
    if sys.stdout.isatty():
        webbrowser.open(page.as_uri())


def passed_through(command: list[str]) -> int:
    """Run a program in this terminal and return its exit code. Ctrl-C is the program's own: this
    process waits for its end."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # a child gets the default again
    try:
        with subprocess.Popen(command) as process:
            return process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
