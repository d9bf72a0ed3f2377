"""`tokenmill fit`: a model and its training for a text and a time, each value with its reason."""

import argparse
import sys
from functools import partial
from pathlib import Path

from tokenmill.cli.main import Parser, positive
from tokenmill.cli.preset import offer
from tokenmill.core.errors import UserError
from tokenmill.display import console, note, print_columns
from tokenmill.stage import set_wait_policy
from tokenmill.words.units import duration, si, size

HERE = "here"

EXAMPLES = """\
  tokenmill fit --minutes 30                       what this machine trains in half an hour
  tokenmill fit --minutes 30 --yes && dvc repro    write params.yaml without asking, then train
  tokenmill fit --minutes 60 --hardware A100       the same for a GPU, by its data sheet
  tokenmill fit --budget 5 --hardware A100 --price-per-hour 2

The text is that of data.raw in params.yaml. Only training is counted; cleaning and evaluation come
on top.
"""


def add_arguments(parser: Parser) -> None:
    """Declare how much time or money there is, and the hardware."""
    amount = parser.add_mutually_exclusive_group(required=True)
    amount.add_argument("--minutes", type=positive, metavar="N", help="of training")
    amount.add_argument(
        "--budget", type=positive, metavar="X", help="money for training, in runtime.cost.currency"
    )
    parser.add_argument(
        "--hardware",
        default=HERE,
        metavar="NAME",
        help="a GPU; default: this machine, measured now",
    )
    parser.add_argument(
        "--price-per-hour",
        type=positive,
        metavar="X",
        help="for --budget (default: runtime.cost.price_per_hour)",
    )
    parser.add_argument("--yes", action="store_true", help="write params.yaml without asking")


def run(options: argparse.Namespace) -> None:
    """Print the proposal and its difference from params.yaml, then write the file if the user
    agrees."""
    set_wait_policy()
    from tokenmill.planning.benchmark import step_timer  # noqa: PLC0415 (PyTorch)
    from tokenmill.planning.fit import Corpus, fit  # noqa: PLC0415
    from tokenmill.planning.plan import known_hardware, step_seconds_on  # noqa: PLC0415
    from tokenmill.schema import check_all  # noqa: PLC0415

    params = check_all()
    price = options.price_per_hour or params.runtime.cost.price_per_hour
    if options.budget and not price:
        raise UserError(
            "--budget needs to know what an hour costs; add --price-per-hour, or set it in "
            "runtime.cost."
        )
    seconds = 60 * options.minutes if options.minutes else 3600 * options.budget / price
    on_gpu = options.hardware.lower() != HERE
    step_seconds = (
        partial(step_seconds_on, known_hardware([options.hardware])[0])
        if on_gpu
        else step_timer(params.runtime)
    )
    if sys.stderr.isatty():
        note("reading the text" if on_gpu else "reading the text and timing steps of some models")
    corpus = Corpus.read(Path(), params)
    proposal = fit(corpus, params, seconds=seconds, step_seconds=step_seconds)
    tokens = proposal.text.train_tokens
    documents = si(corpus.documents, space="")
    text = f"{documents} documents, {tokens:,} tokens to train on: {params.data.raw}"
    share = f"{100 * proposal.seconds / seconds:.0f}% of the time"
    time = f"{proposal.work.steps:,} steps on {options.hardware}, {share}"
    if price:
        time += f", {price * proposal.seconds / 3600:.2f} {params.runtime.cost.currency}"
    print_columns(
        [
            ("text", size(corpus.text_bytes), text),
            *proposal.reasons,
            ("time", duration(proposal.seconds), time),
        ]
    )
    console().print()
    offer(proposal.values, "fit", yes=options.yes)
