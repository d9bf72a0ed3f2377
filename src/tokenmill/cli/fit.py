"""`tokenmill fit`: a model and its training for a text and a time, each value with its reason."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.main import Parser, positive
from tokenmill.cli.preset import NEXT, offer
from tokenmill.core.errors import UserError
from tokenmill.display import console, note, print_columns, say
from tokenmill.words.units import duration, money, si, size

if TYPE_CHECKING:
    from tokenmill.planning.fit import StepSeconds
    from tokenmill.schema import AllParams

HERE = "here"

EXAMPLES = """\
  tokenmill fit --minutes 30                       what this machine trains in half an hour
  tokenmill fit ~/texts --minutes 30               the same for a text that becomes data.raw
  tokenmill fit --minutes 30 --yes && dvc repro    write params.yaml without asking, then train
  tokenmill fit --minutes 60 --hardware A100       the same for a GPU, by its data sheet
  tokenmill fit --budget 5 --hardware A100 --price-per-hour 2

Without a path the text is that of data.raw in params.yaml. Only training is counted; cleaning and
evaluation come on top.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the text, how much time or money there is, and the hardware."""
    parser.add_argument(
        "path",
        nargs="?",
        metavar="PATH",
        help="a file or folder of text, or s3://bucket/prefix (default: data.raw)",
    )
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
        help="of the hardware (default: of this machine, runtime.cost.price_per_hour)",
    )
    parser.add_argument("--yes", action="store_true", help="write params.yaml without asking")


def run(options: argparse.Namespace) -> None:
    """Print the proposal and its difference from params.yaml, then write the file if the user
    agrees."""
    from tokenmill.hardware import known_hardware
    from tokenmill.planning.plan import gpu_timer

    params = params_for(options.path)
    where = options.hardware
    is_here = where.lower() == HERE
    place = HERE if is_here else f"on {where}"
    price = options.price_per_hour or (params.runtime.cost.price_per_hour if is_here else None)
    if options.budget and not price:
        way_out = "add --price-per-hour" + (", or set it in runtime.cost" if is_here else "")
        raise UserError(f"--budget needs to know what an hour {place} costs; {way_out}.")
    seconds = 60 * options.minutes if options.minutes else 3600 * options.budget / price
    gpu = None if is_here else gpu_timer(known_hardware([where])[0])
    values, tokens = propose(params, seconds=seconds, step_seconds=gpu, price=price, place=place)
    if offer(values, "fit", yes=options.yes):
        say(NEXT.format(f"--tokens {tokens} --hardware {where}"))


def params_for(path: str | None) -> "AllParams":
    """The parameters of this project with the text at `path` as `data.raw`, if there is one."""
    from tokenmill.core.params import PARAMS_FILE
    from tokenmill.planning.params_file import params_with
    from tokenmill.schema import check_all

    params = check_all()
    if path is None:
        return params
    return params_with({"data.raw": as_raw(path)}, PARAMS_FILE)


def as_raw(path: str) -> str:
    """A path as `data.raw` has it: relative to this project if it is in it, else absolute. A URL
    stays as it is."""
    from tokenmill.core.params import is_url
    from tokenmill.core.paths import real_path

    if is_url(path):
        return path
    whole = real_path(path)
    return (whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole).as_posix()


def propose(
    params: "AllParams",
    *,
    seconds: float,
    step_seconds: "StepSeconds | None" = None,
    price: float | None = None,
    place: str = HERE,
) -> tuple[dict[str, Any], int]:
    """Print a training of so many seconds for the text at `data.raw`, each value with its reason.
    Return the values for params.yaml, and the number of tokens to train on.

    Args:
        step_seconds: the seconds of a step; None to measure them on this machine.
        price: of an hour, in `runtime.cost.currency`.
        place: where it trains, in words: `here`, `on A100`.
    """
    from tokenmill.planning.benchmark import step_timer
    from tokenmill.planning.fit import Corpus, fit

    if sys.stderr.isatty():
        timing = "" if step_seconds else " and timing steps of some models"
        note(f"reading the text{timing}")
    corpus = Corpus.read(Path(), params)
    proposal = fit(
        corpus, params, seconds=seconds, step_seconds=step_seconds or step_timer(params.runtime)
    )
    share = f"{100 * proposal.seconds / seconds:.0f}% of the time"
    time = f"{proposal.work.steps:,} steps {place}, {share}"
    if price:
        time += f", {money(price * proposal.seconds / 3600, params.runtime.cost.currency)}"
    tokens = f"{proposal.text.train_tokens:,} tokens to train on"
    noun = "document" if corpus.documents == 1 else "documents"
    text = f"{si(corpus.documents, space='')} {noun}, {tokens}: {params.data.raw}"
    print_columns(
        [
            ("text", size(corpus.text_bytes), text),
            *proposal.reasons,
            ("time", duration(proposal.seconds), time),
        ]
    )
    if proposal.too_large:
        console().print(f"no larger model was tried: {proposal.too_large}")
    console().print()
    # The time is that of all the text once in an epoch
    values = {"data.raw": params.data.raw, "data.mixture": None} | proposal.values
    return values, proposal.text.train_tokens
