"""`tokenmill export`: a trained model as a folder for `transformers`, llama.cpp or ONNX, with tokenizer and card."""

import argparse
import re
from pathlib import Path

from tokenmill.cli.arguments import Parser

EXAMPLES = """\
  tokenmill export                                  the last epoch, to exports/epoch-4
  tokenmill export --epoch 2 my-model               another epoch, to my-model
  tokenmill export --rev wroth-code                 the model of an experiment, branch, tag or commit
  tokenmill export --model FOLDER --tokenizer FILE  a model in a folder
  tokenmill export --format gguf                    for llama.cpp and Ollama, to exports/epoch-4-gguf
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
    parser.add_argument("--epoch", type=int, metavar="N", help="this epoch")
    parser.add_argument("--rev", metavar="REV", help="of another git revision or DVC experiment, or a ref epoch-N")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="in a folder: config.json, model.safetensors")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="for --model, if it is not in its folder")


def run(options: argparse.Namespace) -> None:
    """Find the model, and write its folder.

    Raises:
        UserError: there is no such model, or the folder exists.
    """
    from tokenmill.core.units import visible  # noqa: PLC0415
    from tokenmill.export.folder import CARD, export, record_of  # noqa: PLC0415 (PyTorch)
    from tokenmill.models.find import find  # noqa: PLC0415

    root = Path()
    which = {name: getattr(options, name) for name in ("epoch", "rev", "model", "tokenizer")}
    checkpoint = find(root, **which)
    name = re.sub(r"[^\w.-]+", "-", checkpoint.name).strip("-.")
    target = options.folder or Path("exports") / (name if options.format == "hf" else f"{name}-{options.format}")
    export(checkpoint, record_of(checkpoint, root, options.rev), target, options.format)
    print(visible(f"{checkpoint.name}: {target}"))
    print(f"fill in the licence in {visible(str(target / CARD))} before you publish it")
