"""`tokenmill preset`: the presets in a table, or the difference that one makes, and then params.yaml with it."""

import argparse
import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from tokenmill.cli.main import Parser
from tokenmill.core.files import write_text
from tokenmill.core.units import duration, visible
from tokenmill.display import console, print_columns
from tokenmill.planning.hardware import UTILISATION
from tokenmill.planning.presets import apply, names, read

GPU = "A100"

COLOURS = {"+": "green", "-": "red", "@": "dim"}

EXAMPLES = """\
  tokenmill preset                    the presets, and what they would take
  tokenmill preset phase1             show what would change in params.yaml, then ask
  tokenmill preset phase3 --yes       write without asking
  tokenmill preset default --yes      back to the values that this repository came with
  tokenmill plan --preset phase3      what it would take, without writing anything

What to read (`data`), how to ask (`evaluate`) and how to run (`runtime`) stay as they are.
"""


def add_arguments(parser: Parser) -> None:
    """Which preset, and whether to ask."""
    parser.add_argument("name", nargs="?", choices=names(), metavar="PRESET", help=f"one of {', '.join(names())}")
    parser.add_argument("--yes", action="store_true", help="write without asking")


def run(options: argparse.Namespace) -> None:
    """List the presets, or put one into params.yaml."""
    if options.name is None:
        _print_presets(Path())
    else:
        put(options.name, yes=options.yes)


def _print_presets(root: Path) -> None:
    from tokenmill.planning.plan import PlanOptions, plan_training  # noqa: PLC0415 (PyTorch)

    rows = [("preset", "parameters", "tokens x epochs", f"on an {GPU}", "about")]
    for name in names():
        preset, plan = read(name), plan_training(root, PlanOptions(preset=name, hardware=[GPU]))
        tokens = f"{preset.tokens:.3g} x {plan.work.train.epochs}".replace("e+0", "e")
        hours = duration(next(row for row in plan.rows if row.name == GPU).total_seconds)
        rows.append((name, f"{plan.parameters:,}", tokens, hours, preset.about))
    print_columns(rows, right=(1, 2, 3))
    note = f"hours at {UTILISATION:.0%} of the peak, which small models do not reach"
    console().print(f"{note}; `tokenmill plan --preset NAME` has more")


def put(name: str, *, yes: bool) -> None:
    """Offer the values of a preset.

    Raises:
        UserError: params.yaml cannot be read, or something in it stays wrong with the preset's values.
    """

    preset = read(name)
    console().print(f"made for {preset.text}; set data.raw to where your copy is")
    offer(preset.values, name, yes=yes)


def offer(values: Mapping[str, Any], name: str, *, yes: bool) -> None:
    """Print what other values change in params.yaml; write it if `yes` or if the user agrees.

    Raises:
        UserError: params.yaml cannot be read, or something in it stays wrong with these values.
    """
    from tokenmill.core.params import PARAMS_FILE, validate  # noqa: PLC0415 (pydantic)
    from tokenmill.schema import AllParams  # noqa: PLC0415

    change = apply(values, PARAMS_FILE)
    validate(AllParams, change.content, PARAMS_FILE)
    if change.after == change.before:
        print(f"{PARAMS_FILE} has the values of {name} already")
        return
    _print_difference(change.before, change.after, names=(str(PARAMS_FILE), f"{PARAMS_FILE} ({name})"))
    if yes or _confirmed(PARAMS_FILE):
        write_text(PARAMS_FILE, change.after)
        print(f"{PARAMS_FILE} is written; `tokenmill plan` says what it takes, `dvc repro` does it")


def _print_difference(before: str, after: str, *, names: tuple[str, str]) -> None:
    screen = console()
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="", n=1)
    for line in lines:
        screen.print(Text(visible(line), COLOURS.get(line[0], "")), soft_wrap=True)


def _confirmed(path: Path) -> bool:
    """Ask the user; without a terminal say how to agree."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print(f"{path} is as it was; --yes writes it")
        return False
    try:
        answer = input(f"write {path}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        return True
    print(f"{path} is as it was")
    return False
