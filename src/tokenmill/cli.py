"""`tokenmill`: what a person asks about the pipeline; running it is `dvc repro`."""

import argparse
import os
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
    _add_plan(commands)
    _add_profile(commands)
    return parser


PLAN = """examples:
  tokenmill plan                                  the training in params.yaml, on the tokens there are
  tokenmill plan --tokens 2.8e9 --vocab-size 32000 -S model.n_layer=12 -S model.n_embd=768 -S model.n_head=12
  tokenmill plan --hardware A100 H100 --devices 8 --price-per-hour 2
  tokenmill plan --hardware A100 --step-seconds 0.1    what share of the peak that would be
"""


def _add_plan(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    add = commands.add_parser(
        "plan",
        help="what a training would take: parameters, steps, memory, hours, money; runs nothing",
        epilog=PLAN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add.add_argument("--tokens", type=_positive, metavar="N", help="tokens to train on; else those of data/tokens")
    add.add_argument("--vocab-size", type=_count, metavar="N", help="entries of the tokenizer; else the present one's")
    add.add_argument("--hardware", nargs="+", default=[], metavar="NAME", help="GPUs to plan for; else all known")
    add.add_argument("--devices", type=_count, default=1, metavar="N", help="GPUs in one machine (default 1)")
    add.add_argument("--utilisation", type=_positive, default=0.4, metavar="X", help="share of the peak (default 0.4)")
    add.add_argument("--step-seconds", type=_positive, metavar="S", help="say what share of the peak such a step is")
    add.add_argument("--price-per-hour", type=_positive, metavar="X", help="of one GPU, in runtime.cost.currency")
    add.add_argument("-S", dest="changes", action="append", default=[], metavar="NAME=VALUE", help="another parameter")
    add.add_argument("--table", action="store_true", help="print the table of docs/scale.md instead")
    add.set_defaults(run=_plan)


PROFILE = """examples:
  tokenmill profile                     twenty steps of the training in params.yaml
  tokenmill profile --steps 100 --trace /tmp/trace.json

Open the trace in chrome://tracing or https://ui.perfetto.dev.
"""


def _add_profile(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    add = commands.add_parser(
        "profile",
        help="what binds a training step: data, Python, memory bandwidth or compute; touches no checkpoint",
        epilog=PROFILE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add.add_argument("--steps", type=_count, default=20, metavar="N", help="steps to profile (default 20)")
    add.add_argument(
        "--trace", type=Path, default=Path("reports/trace.json"), metavar="FILE", help="where the trace goes"
    )
    add.set_defaults(run=_profile)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be greater than 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} must be 1 or more")
    return value


def _plan(options: argparse.Namespace) -> None:
    from tokenmill.commands import plan, scale_table  # noqa: PLC0415 (PyTorch takes seconds to load)

    asked = {name: value for name, value in vars(options).items() if name not in ("run", "table")}
    print(scale_table.render() if options.table else plan.render(Path(), plan.Wish(**asked)))


def _profile(options: argparse.Namespace) -> None:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as the stages do, before PyTorch is loaded
    from tokenmill.commands import profile  # noqa: PLC0415

    print(profile.render(Path(), steps=options.steps, trace=options.trace))


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
