"""`tokenmill export`: a trained model as a folder for `transformers`, llama.cpp or ONNX, or on the Hugging Face Hub."""

import argparse
import re
from pathlib import Path

from tokenmill.cli.generate import add_model_arguments, find_model
from tokenmill.cli.main import Parser
from tokenmill.core.errors import UserError
from tokenmill.core.units import visible

EXAMPLES = """\
  tokenmill export                                  the last epoch, to exports/epoch-4
  tokenmill export --epoch 2 my-model               another epoch, to my-model
  tokenmill export --rev wroth-code                 the model of an experiment, branch, tag or commit
  tokenmill export --model FOLDER --tokenizer FILE  a model in a folder
  tokenmill export --format gguf                    for llama.cpp and Ollama, to exports/epoch-4-gguf
  tokenmill export --push ada/speeches              to the Hugging Face Hub, where only you see it
  tokenmill export --push ada/speeches --public --license apache-2.0
"""


def add_arguments(parser: Parser) -> None:
    """The folder, and which model."""
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="a new folder (default: below exports)")
    parser.add_argument(
        "--format",
        choices=("hf", "gguf", "onnx"),
        default="hf",
        help="hf: for transformers (default); gguf: for llama.cpp, architecture gpt2 only; onnx: for onnxruntime",
    )
    add_model_arguments(parser)
    parser.add_argument("--license", metavar="NAME", help="on the card, as the hub names it: apache-2.0, mit, …")
    parser.add_argument("--push", metavar="OWNER/NAME", help="upload it to this repository of the Hugging Face Hub")
    parser.add_argument("--public", action="store_true", help="let everybody see what --push uploads")


def run(options: argparse.Namespace) -> None:
    """Find the model, write its folder, and upload it if asked: as it is, if it exists and holds this model.

    Raises:
        UserError: there is no such model, the folder exists, or the upload fails.
    """
    from tokenmill.runs import publish  # noqa: PLC0415 (the hub's client)
    from tokenmill.runs.export import CARD, export, record_of  # noqa: PLC0415 (PyTorch)

    if options.public and options.push is None:
        raise UserError("--public is for --push OWNER/NAME.")
    if options.license:
        publish.check_license(options.license)
    api = None if options.push is None else publish.client(options.push)
    checkpoint = find_model(options)
    name = re.sub(r"[^\w.-]+", "-", checkpoint.name).strip("-.")
    target = options.folder or Path("exports") / (name if options.format == "hf" else f"{name}-{options.format}")
    if not (api and publish.is_export_of(checkpoint, target, options.format)):
        export(checkpoint, record_of(checkpoint, Path(), options.rev), target, options.format)
    publish.complete_card(target, options.license, options.push)
    print(visible(f"{checkpoint.name}: {target}"))
    if not publish.license_of(target):
        if options.public:
            raise UserError(
                f"{target / CARD} names no licence; add --license apache-2.0 or another, or write it there."
            )
        print(f"fill in the licence in {visible(str(target / CARD))} before you publish it")
    if api and options.push:
        address = publish.push(api, target, options.push, public=options.public)
        print(visible(f"{address}: pushed, {'public' if options.public else 'private; --public is for everybody'}"))
