"""`tokenmill runs`: one table of all commits and experiments, with changed parameters, results and
costs."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.main import Parser, add_json, count
from tokenmill.display import console, print_columns, print_record, say, shortened
from tokenmill.words.units import duration, fixed, money

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
"""The names by which rows can be sorted, each with its column."""

BEST_IS_MOST = ("right", "speed")

AGREE = {
    "val_loss": ("tokenizer", "validation_text"),
    "bits_per_byte": ("validation_text",),
    "money": ("currency", "text"),
}
"""The columns in which runs must agree so that their numbers have an order, the last of them the
first to look at; for other numbers, `text`."""

NAME_WIDTH = 40
"""The most columns that a name takes on a terminal. A pipe gets it whole."""

COMMITS = 10
"""The number of commits whose runs are listed."""

EXAMPLES = """\
  tokenmill runs                        the workspace, commits and their experiments
  tokenmill runs --sort bits            the best first, those of each text together
  tokenmill runs --csv > runs.csv       every column, for pandas or a spreadsheet
  tokenmill runs --json                 the same for a program
"""


def add_arguments(parser: Parser) -> None:
    """Declare the order, extent and form of the table."""
    parser.add_argument(
        "--sort", choices=SORT, default="new", metavar="COLUMN", help=f"one of {', '.join(SORT)}"
    )
    parser.add_argument(
        "--commits",
        type=count,
        default=COMMITS,
        metavar="N",
        help=f"of how many commits (default {COMMITS})",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print all columns as CSV")
    add_json(form)


def run(options: argparse.Namespace) -> None:
    """Print the table of the project in the current folder."""
    from tokenmill.runs.table import find_runs

    runs = find_runs(Path(), commits=options.commits)
    if column := SORT[options.sort]:
        runs = ranked(runs, column, ascending=options.sort not in BEST_IS_MOST)
    if options.csv:
        say(runs.to_csv(index=False, float_format="%.6g").rstrip("\n"))
        return
    if options.json:
        known = runs.astype(object).where(runs.notna(), None)
        print_record({"runs": known.to_dict("records")})
        return
    _print(runs)
    several = [name for name in AGREE.get(column, ("text",)) if runs.loc[:, name].nunique() > 1]
    if column and several:
        names = " and ".join(name.replace("_", " ") for name in reversed(several))
        console().print(
            f"runs of one {names} stand together, the workspace's first;\n"
            "numbers of different ones have no order"
        )
    lacking = runs.loc[runs["val_loss"].notna() & runs["bits_per_byte"].isna(), "run"]
    if len(lacking):
        console().print(f"not evaluated yet, which `dvc repro` does there: {', '.join(lacking)}")
    for name in runs.loc[runs["state"] == "failed", "run"]:
        console().print(f"why {name} failed: `dvc queue logs {name}`")
    if runs.loc[:, "seconds"].hasnans:
        console().print(
            "times and costs are known where all of a run was trained in this folder, and\n"
            "its model is in DVC's cache"
        )


def ranked(runs: "pd.DataFrame", column: str, *, ascending: bool) -> "pd.DataFrame":
    """The runs sorted by a column, those whose numbers have an order together. First come those
    that agree with the first row, which is the workspace's, then the others in the order of their
    best runs."""
    own = runs.head(1)
    runs = runs.sort_values(column, ascending=ascending, kind="stable")
    for name in AGREE.get(column, ("text",)):
        runs = _together(runs, name, first=[*own[name].dropna()])
    return runs


def _together(runs: "pd.DataFrame", column: str, *, first: Sequence[str]) -> "pd.DataFrame":
    """The runs with equal values of a column together, otherwise in their order: those of the value
    in `first` before the others, those without one at the end."""
    values = dict.fromkeys([*first, *runs[column].dropna()])
    order = {value: number for number, value in enumerate(values)}
    return runs.sort_values(column, key=lambda cells: cells.map(order), kind="stable")


def _print(runs: "pd.DataFrame") -> None:
    known = [row.dropna().to_dict() for _, row in runs.iterrows()]
    head = ("run", "val loss", "bits/byte", "right", "time", "tokens/s", "cost")
    names, *columns = zip(head, *map(_cells, known), strict=True)
    shown = list(zip(names, *(cells for cells in columns if any(cells[1:])), strict=True))
    if sys.stdout.isatty():
        shown = [(shortened(name, NAME_WIDTH), *numbers) for name, *numbers in shown]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    changes = [": ".join(filter(None, (row["state"], row["changed"]))) for row in known]
    tuned = map(_finetuned, known)
    for (name, *numbers), *below in zip(shown, ["", *changes], ["", *tuned], strict=True):
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        console().print("  ".join([name.ljust(widths[0]), *cells]).rstrip(), soft_wrap=True)
        for line in filter(None, below):
            print_columns([("   ", line)], gap=1)


def _finetuned(known: Mapping[Any, Any]) -> str:
    chats, text = (known.get(name) for name in ("chats_loss", "base_text_loss"))
    if chats is None or text is None:
        return ""
    return f"fine-tuned: loss {fixed(chats)} on held-out chats, {fixed(text)} on the base's text"


def _cells(known: Mapping[Any, Any]) -> tuple[str, ...]:
    return (
        str(known["run"]),
        *(fixed(known[name]) if name in known else "" for name in ("val_loss", "bits_per_byte")),
        f"{known['right']:.0%}" if "right" in known else "",
        duration(known["seconds"]) if "seconds" in known else "",
        f"{known['tokens_per_second']:,.0f}" if "tokens_per_second" in known else "",
        money(known["money"], known.get("currency")) if "money" in known else "",
    )
