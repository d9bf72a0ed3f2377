"""`tokenmill` answers questions about the pipeline, its models and plans; `dvc repro` runs the pipeline."""

import argparse
import importlib
import sys
from collections.abc import Collection, Sequence
from types import ModuleType

from tokenmill import stage
from tokenmill.cli.arguments import Parser

COMMANDS = {
    "summary": "show what the pipeline made: losses, answers, costs, and what to type next",
    "runs": "list all commits and experiments: what each changed, losses, answers, time and cost",
    "watch": "show a training while it runs: losses, speed, time left, cost, answers; also as a page",
    "compare": "show epochs and experiments side by side: losses, parameters, answers; also as a page",
    "generate": "let a trained model answer, continue a text, or chat",
    "export": "write a trained model as a folder for Hugging Face, llama.cpp or ONNX, with its tokenizer and a card",
    "import": "bring a model from which training starts to models/start, under DVC: GPT-2, an epoch, an experiment",
    "demo": "serve a page in the browser on which the trained models answer, two side by side if you like",
    "plan": "estimate what training would take: parameters, steps, memory, hours, money; runs nothing",
    "fetch": "bring text from Hugging Face, the web or a bucket to data/raw, under DVC",
    "fit": "propose a model and its training for a text and an amount of time, and put it into params.yaml",
    "preset": "put a known configuration into params.yaml, or list the presets",
    "profile": "find what limits a training step: data, Python, memory bandwidth or compute; writes no checkpoint",
    "doctor": "check environment, device, disk, DVC and git, and show the command that fixes what is wrong",
    "params": "check params.yaml; print or write the reference of every parameter",
    "completion": "print a script by which the shell completes commands",
}
"""Each is a module of this package, imported when it is typed."""

EPILOG = """\
without a command it says where this project stands and what to type next

examples:
  dvc repro                             run the pipeline, or what a change touches of it
  dvc exp run -S model.n_layer=12       an experiment
  tokenmill generate                    chat with the model
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command, or `status` without one; a user's error is one sentence on stderr and exit code 1."""
    typed = list(sys.argv[1:] if arguments is None else arguments)

    def work() -> None:
        options = build_parser(typed[:1]).parse_args(typed)
        _module(options.command or "status").run(options)

    stage.report_errors(work)


def build_parser(with_arguments: Collection[str] = tuple(COMMANDS)) -> Parser:
    """The parser of the command line; only the commands named have their arguments, so that only they are imported."""
    parser = Parser(
        prog="tokenmill",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name, help_ in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=help_,
            description=f"{help_[0].upper()}{help_[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in with_arguments:
            module = _module(name)
            if hasattr(module, "add_arguments"):
                module.add_arguments(command)
            command.epilog = f"examples:\n{module.EXAMPLES}"
    return parser


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"tokenmill.cli.{command}")
