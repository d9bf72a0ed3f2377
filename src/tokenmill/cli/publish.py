"""`tokenmill publish`: the run report as a page on which every epoch answers, in a folder for any
web server or none."""

import argparse
from pathlib import Path

from tokenmill.cli.main import Parser
from tokenmill.display import say
from tokenmill.words.units import counted, size

EXAMPLES = """\
  tokenmill publish                        all epochs, to site/index.html; open it in a browser
  tokenmill publish --epoch 1 4            only these epochs
  tokenmill publish --weights float16      twice as large, nearer to the weights of training
  tokenmill publish --output docs/demo     another folder
"""


def add_arguments(parser: Parser) -> None:
    """Declare the folder, the epochs, and how weights are stored."""
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("site"),
        metavar="FOLDER",
        help="the folder to write (default: site)",
    )
    parser.add_argument(
        "--epoch", type=int, nargs="+", metavar="N", help="these epochs (default: all)"
    )
    parser.add_argument(
        "--weights",
        choices=("int8", "float16", "float32"),
        default="int8",
        help="how the page stores matrices: int8 with a scale for each row (default), or as floats",
    )


def run(options: argparse.Namespace) -> None:
    """Write the folder and say what is in it."""
    from tokenmill.cli.generate import default_sampling, evaluate_params
    from tokenmill.publish.site import INDEX, WEIGHTS, publish

    epochs = publish(
        Path(),
        options.output,
        default_sampling(evaluate_params()),
        epochs=options.epoch,
        precision=options.weights,
    )
    page = options.output / INDEX
    sizes = [file.stat().st_size for file in (options.output / WEIGHTS).glob("*.js")]
    beside = ""
    if sizes:
        beside = f", weights of {size(sum(sizes))} in {counted(len(sizes), 'file')} beside it"
    say(f"{page}: {counted(len(epochs), 'epoch')}, {size(page.stat().st_size)}{beside}")
