"""`tokenmill profile`: what limits the training in params.yaml, in a sentence, a table and a trace."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.main import Parser, count
from tokenmill.core import paths
from tokenmill.display import console, print_columns
from tokenmill.stage import set_wait_policy

if TYPE_CHECKING:
    from tokenmill.planning.benchmark import Profile

TRACE = Path("reports/trace.json")

OPERATIONS_SHOWN = 12

EXAMPLES = """\
  tokenmill profile                     twenty steps of the training in params.yaml
  tokenmill profile --steps 100 --trace /tmp/trace.json

Open the trace in chrome://tracing or https://ui.perfetto.dev.
"""


def add_arguments(parser: Parser) -> None:
    """How many steps, and where the trace goes."""
    parser.add_argument("--steps", type=count, default=20, metavar="N", help="steps to profile (default 20)")
    parser.add_argument(
        "--trace", type=Path, default=TRACE, metavar="FILE", help=f"where the trace goes (default {TRACE})"
    )


def run(options: argparse.Namespace) -> None:
    """Profile the training of the project in the current folder."""
    set_wait_policy()
    from tokenmill.planning.benchmark import profile_training  # noqa: PLC0415 (PyTorch)
    from tokenmill.schema import check_all  # noqa: PLC0415

    params = check_all()
    result = profile_training(
        model=params.model,
        train=params.train,
        runtime=params.runtime,
        tokens=paths.TOKENS,
        steps=options.steps,
        trace=options.trace,
    )
    console().print(result.sentence)
    _print_rates(result)
    print()
    _print_operations(result)
    print(f"\ntrace: {options.trace}")


def _print_rates(result: "Profile") -> None:
    rate, best = result.flops / result.seconds, result.product_rate
    step, speed = result.seconds / result.steps * 1000, result.tokens / result.seconds
    console().print(f"a step takes {step:.3g} ms under the profiler, {speed:,.0f} tokens/s")
    console().print(
        f"that is {rate:.3g} operations a second, {rate / best:.1%} of what one large product reaches ({best:.3g})"
    )


def _print_operations(result: "Profile") -> None:
    rows = [("share", "ms a step", "calls", "operation")]
    for operation in result.operations[:OPERATIONS_SHOWN]:
        share, milliseconds = operation.seconds / result.seconds, operation.seconds / result.steps * 1000
        calls = f"{operation.calls / result.steps:.0f}"
        rows.append((f"{share:.1%}", f"{milliseconds:.3f}", calls, f"{operation.name[:70]} ({operation.kind})"))
    print_columns(rows, right=(0, 1, 2))
