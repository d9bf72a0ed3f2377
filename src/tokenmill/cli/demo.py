"""`tokenmill demo`."""

import argparse
from pathlib import Path

from tokenmill.cli.arguments import Commands, add_command
from tokenmill.openmp import sleep_soon_beside_others

EXAMPLES = """\
  tokenmill demo                              every epoch of this run, and every experiment, in your browser
  tokenmill demo --open --port 8000
  tokenmill demo --model /path/to/model       a further folder, with config.json, model.safetensors, tokenizer.json
  tokenmill demo --host 0.0.0.0               for everybody in the network
"""


def add(commands: Commands) -> None:
    """Add the command."""
    add = add_command(
        commands,
        "demo",
        _run,
        help_="a page in the browser on which the trained models answer, two side by side if you like",
        examples=EXAMPLES,
    )
    add.add_argument("--port", type=_port, default=7860, metavar="N", help="0 is any free one (default 7860)")
    add.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: only this machine)"
    )
    add.add_argument(
        "--model", type=Path, nargs="+", action="extend", default=[], metavar="FOLDER", help="further models to offer"
    )
    add.add_argument("--open", action="store_true", help="open the browser")


def _run(options: argparse.Namespace) -> None:
    sleep_soon_beside_others()
    from tokenmill.commands import demo  # noqa: PLC0415 (PyTorch takes seconds to load)

    demo.serve(Path(), host=options.host, port=options.port, folders=options.model, open_browser=options.open)


def _port(text: str) -> int:
    """A port's number."""
    value = int(text)
    if not 0 <= value < 65536:
        raise argparse.ArgumentTypeError(f"{text} must be between 0 and 65535")
    return value
