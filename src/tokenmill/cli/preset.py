"""`tokenmill preset`: known sets of values for params.yaml, in `presets/*.yaml`.

A preset is put over the values of `default`, so no value of another preset remains. All else in
params.yaml remains, because its text is changed only where it has another value, in the format of
`dvc exp run -S`.
"""

import argparse
import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from tokenmill.cli.main import Parser
from tokenmill.core.files import read_bytes, write_text
from tokenmill.display import console, print_columns, say
from tokenmill.planning.presets import PRESETS, read_preset
from tokenmill.words.units import duration, message

GPU = "A100"

NEXT = "`tokenmill plan {}` says what this takes, `dvc repro` does it"
"""A line after other values of params.yaml, of which the tokens are not made yet."""

COLOURS = {"+": "green", "-": "red", "@": "dim"}

EXAMPLES = """\
  tokenmill preset                    the presets, and what they would take
  tokenmill preset phase1             show what would change in params.yaml, then ask
  tokenmill preset phase3 --yes       write without asking
  tokenmill preset default --yes      back to what this repository came with
  tokenmill plan --preset phase3      what it would take, without writing anything

A preset sets all of `tokenizer`, `tokenize`, `model` and `train`. The other sections stay as they
are: what to read and to keep of it, how to ask, fine-tuning, how to run.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the preset, and whether to ask."""
    parser.add_argument(
        "name", nargs="?", choices=PRESETS, metavar="PRESET", help=f"one of {', '.join(PRESETS)}"
    )
    parser.add_argument("--yes", action="store_true", help="write without asking")


def run(options: argparse.Namespace) -> None:
    """List the presets, or offer to put one into params.yaml."""
    if options.name is None:
        _print_presets()
    else:
        preset = read_preset(options.name)
        console().print(f"made for {preset.text}; set data.raw to where your copy is")
        if offer(preset.values, preset.name, yes=options.yes):
            say(NEXT.format(f"--preset {preset.name}"))


def _print_presets() -> None:
    from tokenmill.core.params import PARAMS_FILE
    from tokenmill.planning.params_file import params_with
    from tokenmill.planning.plan import UTILISATION, plan_training

    rows = [("preset", "parameters", "tokens x epochs", f"on an {GPU}", "about")]
    for name in PRESETS:
        preset = read_preset(name)
        params = params_with(preset.values, PARAMS_FILE)
        plan = plan_training(
            Path(), params, tokens=preset.tokens, vocab_size=preset.vocab_size, hardware=[GPU]
        )
        tokens = f"{preset.tokens:.3g} x {plan.work.train.epochs}".replace("e+0", "e")
        hours = duration(next(row for row in plan.rows if row.name == GPU).total_seconds)
        rows.append((name, f"{plan.parameters:,}", tokens, hours, preset.about))
    print_columns(rows, right=(1, 2, 3))
    note = f"hours at {UTILISATION:.0%} of the peak, which small models do not reach"
    console().print(f"{note}; `tokenmill plan --preset NAME` has more")


def offer(values: Mapping[str, Any], name: str, *, yes: bool) -> bool:
    """Print how other values change params.yaml. Write the file if `yes` is true or the user
    agrees. Return whether the file has the values now.

    Raises:
        UserError: params.yaml cannot be read, or something in it stays wrong with these values.
    """
    from tokenmill.core.params import PARAMS_FILE
    from tokenmill.planning.params_file import params_with, text_with

    params_with(values, PARAMS_FILE)
    before = read_bytes(PARAMS_FILE).decode("utf-8")
    after = text_with(values, PARAMS_FILE)
    if after == before:
        say(f"{PARAMS_FILE} has the values of {name} already")
        return True
    titles = str(PARAMS_FILE), f"{PARAMS_FILE} ({name})"
    for line in difflib.unified_diff(
        before.splitlines(), after.splitlines(), *titles, lineterm="", n=1
    ):
        console().print(Text(line, COLOURS.get(line[0], "")), soft_wrap=True)
    if not (yes or _confirmed(PARAMS_FILE)):
        return False
    write_text(PARAMS_FILE.resolve(), after)  # it may be a link, which stays one
    say(f"{PARAMS_FILE} is written")
    return True


def _confirmed(path: Path) -> bool:
    """Ask the user. Without a terminal, say how to agree."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        say(f"{path} is as it was; --yes writes it")
        return False
    try:
        answer = input(f"write {message(str(path))}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        return True
    say(f"{path} is as it was")
    return False
