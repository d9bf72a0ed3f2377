"""What the commands share: a parser that says a mistake in one sentence, how a command is added, types of arguments."""

import argparse
import difflib
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeAlias

import shtab

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 (it has no other name)


class Parser(argparse.ArgumentParser):
    """A command line; what it does not understand is one sentence on stderr, with the nearest word, and exit code 2."""

    def error(self, message: str) -> NoReturn:
        """End with the sentence instead of all of the usage."""
        after = "" if message.endswith("?") else ";"
        self.exit(2, f"error: {message}{after} `{self.prog} --help` says what there is.\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override] (overloaded)
        """As argparse does it, but an unknown option ends here, where its neighbours are known."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            near = nearest(unknown[0], self._option_string_actions)
            self.error(f"{unknown[0]} is not an argument of `{self.prog}`{near}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is not among an argument's choices."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        what = "command" if action.dest == "command" else str(action.metavar or action.dest).lower()
        message = f"{value} is not a {what}{nearest(str(value), choices) or '; there are ' + ', '.join(choices)}"
        raise argparse.ArgumentError(None, message)


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean plan?`, or nothing where no known word is like it."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], None], *, help_: str, examples: str
) -> Parser:
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


def add_file(parser: Parser, *flags: str, **settings: Any) -> None:
    """Add an argument that is a file's path, which shells complete."""
    parser.add_argument(*flags, **settings).complete = shtab.FILE  # type: ignore[attr-defined] (shtab reads it)


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
