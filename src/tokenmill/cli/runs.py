"""`tokenmill runs`: all commits and experiments in one table, the best or the newest first."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.main import Parser, count
from tokenmill.core.units import duration, visible
from tokenmill.display import console, print_columns

if TYPE_CHECKING:
    import pandas as pd

SORT = {
    "new": "",
    "loss": "val_loss",
    "bits": "bits_per_byte",
    "right": "right",
    "time": "seconds",
    "cost": "money",
    "speed": "tokens_per_second",
}
"""What the rows can be sorted by, and the column for it."""

BEST_IS_MOST = ("right", "speed")

EXAMPLES = """\
  tokenmill runs                        the workspace, commits and their experiments
  tokenmill runs --sort bits            the best first
  tokenmill runs --csv > runs.csv       every column, for pandas or a spreadsheet
"""


def add_arguments(parser: Parser) -> None:
    """Order, extent and form."""
    parser.add_argument("--sort", choices=SORT, default="new", metavar="COLUMN", help=f"one of {', '.join(SORT)}")
    parser.add_argument("--commits", type=count, default=10, metavar="N", help="of how many commits (default 10)")
    parser.add_argument("--csv", action="store_true", help="print all columns as CSV")


def run(options: argparse.Namespace) -> None:
    """Print the table of the project in the current folder."""
    from tokenmill.runs.table import find_runs  # noqa: PLC0415 (DVC and pandas)

    runs = find_runs(Path(), commits=options.commits)
    if column := SORT[options.sort]:
        runs = runs.sort_values(column, ascending=options.sort not in BEST_IS_MOST, kind="stable")
    if options.csv:
        runs.to_csv(sys.stdout, index=False, float_format="%.6g")
        return
    _print(runs)
    if runs.loc[:, "seconds"].hasnans:
        console().print("times and costs are known where a run was trained on this machine")


def _print(runs: "pd.DataFrame") -> None:
    shown = [("run", "val loss", "bits/byte", "right", "time", "tokens/s", "cost")]
    shown += [_cells(row) for row in runs.to_dict("records")]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    changes = [": ".join(filter(None, each)) for each in zip(runs["state"], runs["changed"], strict=True)]
    for (name, *numbers), change in zip(shown, ["", *changes], strict=True):
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        console().print("  ".join([name.ljust(widths[0]), *cells]).rstrip(), soft_wrap=True)
        if change:
            print_columns([("   ", change)], gap=1)


def _cells(row: "dict[Any, Any]") -> tuple[str, ...]:
    known = {name: value for name, value in row.items() if str(value) != "nan"}
    return (
        visible(str(row["run"])),
        *(f"{known[name]:.4f}" if name in known else "" for name in ("val_loss", "bits_per_byte")),
        f"{known['right']:.0%}" if "right" in known else "",
        duration(known["seconds"]) if "seconds" in known else "",
        f"{known['tokens_per_second']:,.0f}" if "tokens_per_second" in known else "",
        f"{known['money']:,.2f} {known['currency']}" if "money" in known else "",
    )
