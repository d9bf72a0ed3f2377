"""A parser that reports a mistake in one sentence, and the types of arguments."""

import argparse
import difflib
from collections.abc import Iterable
from typing import Any, NoReturn

from tokenmill.core.units import visible


class Parser(argparse.ArgumentParser):
    """A command line; a mistake in it is one sentence on stderr, with the nearest known word, and exit code 2."""

    def error(self, message: str) -> NoReturn:
        """End with the sentence instead of the whole usage."""
        after = "" if message.endswith("?") else ";"
        self.exit(2, f"error: {visible(message)}{after} `{self.prog} --help` shows what there is.\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override] (overloaded)
        """Refuse an unknown option here, where the options like it are known."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            near = _nearest(unknown[0], self._option_string_actions)
            self.error(f"{unknown[0]} is not an argument of `{self.prog}`{near}")
        return found, unknown

    def arguments(self) -> list[argparse.Action]:
        """Its arguments and options."""
        return list(self._actions)

    def commands(self) -> dict[str, "Parser"]:
        """The parsers of its commands, by name."""
        found = (action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
        return dict(next(found, {}))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not among an argument's choices."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        what = "command" if action.dest == "command" else str(action.metavar or action.dest).lower()
        message = f"{value} is not a {what}{_nearest(str(value), choices) or '; there are ' + ', '.join(choices)}"
        raise argparse.ArgumentError(None, message)


def _nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean plan?`, or nothing if no known word is like it."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


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


def port(text: str) -> int:
    """The number of a TCP port; 0 is any free one."""
    value = int(text)
    if not 0 <= value < 65536:
        raise argparse.ArgumentTypeError(f"{text} must be between 0 and 65535")
    return value
