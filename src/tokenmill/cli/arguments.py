"""What the commands share: how one is added, and the types of its arguments."""

import argparse
from collections.abc import Callable
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 (it has no other name)


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], None], *, help_: str, examples: str
) -> argparse.ArgumentParser:
    """Add the command `name`; `examples` stand under its `--help`, one a line with what it does."""
    add = commands.add_parser(
        name,
        help=help_,
        description=help_[0].upper() + help_[1:] + ".",
        epilog="examples:\n" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add.set_defaults(run=run)
    return add


def positive(text: str) -> float:
    """A number greater than 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be greater than 0")
    return value


def count(text: str) -> int:
    """A whole number, 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} must be 1 or more")
    return value
