"""The command `tokenmill`: its parser, the types of its arguments, and how the typed command is
found and run."""

import argparse
import importlib
import re
import sys
import textwrap
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from tokenmill import stage
from tokenmill.core.errors import UserError, did_you_mean
from tokenmill.core.paths import enclosing_project
from tokenmill.process import look_for_garbage_rarely
from tokenmill.words import units

ABOUT = """\
`tokenmill` answers questions about the pipeline, its models and plans;
`dvc repro` runs the pipeline."""

COMMANDS = {
    "try": "fit a model to a text, train it for some minutes, and open the report",
    "summary": "show what the pipeline made: losses, answers, costs, and what to type next",
    "runs": "list all commits and experiments: what each changed, losses, answers, time and cost",
    "watch": (
        "show a training while it runs: losses, speed, time left, cost, answers; also as a page"
    ),
    "compare": (
        "show epochs and experiments side by side: losses, parameters, answers; also as a page"
    ),
    "generate": "let a trained model answer, continue a text, or chat",
    "trace": "show which phrases of a text or an answer stand in the training text, and where",
    "export": (
        "write a trained model as a folder for Hugging Face, "
        "llama.cpp or ONNX, with tokenizer and card"
    ),
    "import": (
        "bring a model from which training starts to models/start, "
        "under DVC: GPT-2, an epoch, an experiment"
    ),
    "demo": (
        "serve a page in the browser on which the trained models answer, "
        "two side by side if you like"
    ),
    "publish": (
        "write the run report as a page on which every epoch answers in the reader's browser, "
        "for any web server or none"
    ),
    "plan": (
        "estimate what training would take: parameters, steps, memory, hours, money; runs nothing"
    ),
    "fetch": "bring text from Hugging Face, the web or a bucket to data/raw, under DVC",
    "fit": (
        "propose a model and its training for a text and an amount of time, "
        "and put it into params.yaml"
    ),
    "preset": "put a known configuration into params.yaml, or list the presets",
    "profile": (
        "find what limits a training step: data, Python, memory bandwidth or "
        "compute; writes no checkpoint"
    ),
    "doctor": (
        "check environment, device, disk, DVC and git, and show "
        "the command that fixes what is wrong"
    ),
    "params": "check params.yaml; explain one parameter, or print or write the reference of all",
    "completion": "print a script by which the shell completes commands",
}
"""The commands with their descriptions. Each is a module of this package, imported when it is
typed."""

EPILOG = """\
without a command it says where this project stands and what to type next

examples:
  tokenmill try ~/texts                 a model of your own text in some minutes, and its report
  dvc repro                             run the pipeline, or what a change touches of it
  dvc exp run -S model.n_layer=12       an experiment
  tokenmill generate                    chat with the model; --text TEXT continues a text
  tokenmill demo                        the same in the browser
  tokenmill runs                        all experiments in one table
  tokenmill compare                     epochs or experiments side by side
  tokenmill doctor                      is everything here that a run needs?
  tokenmill plan --hardware A100        what training would take
  tokenmill COMMAND --help              more about a command, with examples

exit codes:
  0      done; `doctor`: nothing stops a run
  1      an error, with a sentence that names the way out; `doctor`: there is a problem
  2      the command line is wrong
  130    interrupted by Ctrl-C
"""


SHOWN = 60
"""The most characters of an argument that an error shows."""


class Parser(argparse.ArgumentParser):
    """A parser of command lines. A mistake gives one sentence on stderr, with the nearest known
    word, and exit code 2."""

    def error(self, message: str) -> NoReturn:
        """End with the sentence instead of the whole usage."""
        after = "" if message.endswith("?") else ";"
        sentence = f"error: {message}{after} `{self.prog} --help` shows what there is.\n"
        self.exit(2, units.message(sentence))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Refuse an unknown option here, where the options similar to it are known."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hint = did_you_mean(unknown[0], self._option_string_actions)
            end = f"; {hint}" if hint else ""
            self.error(f"{unknown[0]} is not an argument of `{self.prog}`{end}")
        return found, unknown

    def arguments(self) -> list[argparse.Action]:
        """The arguments and options of this parser."""
        return list(self._actions)

    def commands(self) -> dict[str, "Parser"]:
        """The parsers of the commands, by name."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                return dict(action.choices)
        return {}

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Refuse a word where a number belongs, and a text or a name that is not UTF-8; the path of
        a file may be any bytes.

        Raises:
            argparse.ArgumentError: the argument is no number, or none that is allowed.
            UserError: the argument is not UTF-8.
        """
        try:
            value = super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            if not isinstance(error.__context__, ValueError):
                raise
            kind = "whole number" if action.type in (int, count, port) else "number"
            raise argparse.ArgumentError(action, f"{arg_string!r} is no {kind}") from None
        # The parser of a command looks at what follows the command
        if isinstance(value, str) and action.dest != "command":
            try:
                value.encode()
            except UnicodeEncodeError:
                name = "/".join(action.option_strings) or action.metavar or action.dest
                raise UserError(
                    f"{name} ({value[:SHOWN]}) is not UTF-8 text; use a terminal or a script that "
                    "writes UTF-8."
                ) from None
        return value

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        what = str(action.metavar or action.dest).lower()
        if action.option_strings and not action.metavar:
            what = f"value of {action.option_strings[0]}"
        hint = did_you_mean(str(value), choices) or f"there are {', '.join(choices)}"
        raise argparse.ArgumentError(None, f"{value} is not a {what}; {hint}")


def add_json(parser: argparse._ActionsContainer) -> None:
    """Declare `--json` of a command that prints a table."""
    parser.add_argument(
        "--json", action="store_true", help="print JSON, for programs (docs/programs.md)"
    )


MOST = 10**15
"""The largest number on a command line (tokens, operations a second, money), as in params.yaml."""

LEAST = 1 / MOST
"""The smallest number above 0."""

MOST_THINGS = 10_000
"""The most things that a command makes or looks at one by one."""


def _within(text: str, value: float, low: float, high: float) -> float:
    """The value of an argument, which must be in a range."""
    if not low <= value <= high:
        least = "above 0 and at most" if low == LEAST else f"between {low:,g} and"
        raise argparse.ArgumentTypeError(f"{text} must be {least} {high:,g}")
    return value


def positive(text: str) -> float:
    """Parse a number greater than 0."""
    return _within(text, float(text), LEAST, MOST)


def share(text: str) -> float:
    """Parse a number greater than 0 and at most 1."""
    return _within(text, float(text), LEAST, 1)


def amount(text: str) -> int:
    """Parse a whole number, 1 or more, such as 2.8e9."""
    return int(_within(text, float(text), 1, MOST))


def count(text: str) -> int:
    """Parse a number of things, 1 or more."""
    return int(_within(text, int(text), 1, MOST_THINGS))


def port(text: str) -> int:
    """Parse the number of a TCP port; 0 means any free one."""
    return int(_within(text, int(text), 0, 65_535))


def file_name(text: str) -> str:
    """Parse the name of a file or folder, which leads nowhere else."""
    if not re.fullmatch(r"\w[\w.-]*", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name of a file or folder; take letters, digits, dots and dashes"
        )
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; without one, show the status. A user's error is one sentence on stderr and
    exit code 1."""
    look_for_garbage_rarely()
    typed = list(sys.argv[1:] if arguments is None else arguments)

    def work() -> None:
        options = build_parser(typed[:1]).parse_args(typed)
        if options.command:
            refuse_subfolder(options)
            _module(options.command).run(options)
        else:
            _module("summary").print_status()

    stage.report_errors(work)


def refuse_subfolder(options: argparse.Namespace) -> None:
    """Refuse a command in a subfolder of a project, where it would find nothing. `completion` and
    what is about a named model may run anywhere.

    Raises:
        UserError: the current folder is within a project.
    """
    project = enclosing_project(Path())
    if project in (None, Path.cwd()) or options.command == "completion":
        return
    if getattr(options, "model", None) is None:
        raise UserError(f"{Path.cwd()} is inside the project {project}; type this there.")


def refuse_outside() -> None:
    """Refuse a command that puts something under DVC anywhere but in a project's root.

    Raises:
        UserError: the current folder is none.
    """
    if not Path(".dvc").is_dir():
        raise UserError(f"{Path.cwd()} is no project; run the command in the project's root.")


def build_parser(with_arguments: Collection[str] = tuple(COMMANDS)) -> Parser:
    """The parser of the command line. Only the named commands have their arguments, so that only
    these modules are imported."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="tokenmill", description=ABOUT, epilog=EPILOG, formatter_class=as_written)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name, help_ in COMMANDS.items():
        about = f"{help_[0].upper()}{help_[1:]}."
        command = commands.add_parser(
            name, help=help_, description=textwrap.fill(about), formatter_class=as_written
        )
        if name in with_arguments:
            module = _module(name)
            if hasattr(module, "add_arguments"):
                module.add_arguments(command)
            command.epilog = f"examples:\n{module.EXAMPLES}"
    return parser


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"tokenmill.cli.{command}")
