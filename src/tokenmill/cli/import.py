"""`tokenmill import`: a model from which training can start, to models/start, under DVC."""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tokenmill.cli.main import Parser
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.units import visible

EXAMPLES = """\
  tokenmill import /path/to/gpt2                    GPT-2 as transformers saves it, to models/start/gpt2
  tokenmill import --epoch 2                        an epoch of this project's model, to models/start/epoch-2
  tokenmill import --rev wroth-code --name before   the model of an experiment, to models/start/before
  tokenmill import FOLDER --tokenizer FILE          a model whose tokenizer is elsewhere
"""


def add_arguments(parser: Parser) -> None:
    """Which model, and its name here."""
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="config.json, model.safetensors")
    parser.add_argument("--name", help="of the folder in models/start (default: that of the model)")
    parser.add_argument("--epoch", type=int, metavar="N", help="this epoch of the project's model")
    parser.add_argument("--rev", metavar="REV", help="of another git revision or DVC experiment, or a ref epoch-N")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="for FOLDER, if it is not there")


def run(options: argparse.Namespace) -> None:
    """Check the model, write its folder, let DVC track it, and say what to type next.

    Raises:
        UserError: there is no such model, training cannot start from it, or the name is taken or no name.
    """
    from tokenmill.runs.adopt import adopt  # noqa: PLC0415 (PyTorch)
    from tokenmill.runs.find import find  # noqa: PLC0415

    if not Path(".dvc").is_dir():
        raise UserError(f"{Path.cwd()} is no project; run the command in the project's root.")
    if options.folder and not options.folder.exists():
        raise UserError(
            f"{options.folder} is not here; `hf download OWNER/NAME --revision REV --local-dir FOLDER` brings a model "
            "of Hugging Face, `dvc get` one of another project."
        )
    found = find(Path(), epoch=options.epoch, rev=options.rev, model=options.folder, tokenizer=options.tokenizer)
    name = options.name or re.sub(r"[^\w.-]+", "-", (options.folder or Path(found.name)).resolve().name).strip("-.")
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UserError(f"--name {name!r} is no name of a folder; take letters, digits, dots and dashes.")
    target = paths.STARTS / name
    config = adopt(found, target)
    if subprocess.run([sys.executable, "-m", "dvc", "add", "--quiet", str(target)], check=False).returncode:
        raise UserError(f"{target} is written, but DVC does not track it; its message is above.")
    values = {"start_from": target.as_posix()} | config.model_dump(exclude={"vocab_size", "dropout"})
    print(visible(f"{found.name}: {target}"))
    print(f"to keep it:        git add {paths.STARTS} && git commit, and `dvc push`")
    print(
        "to train from it:  dvc exp run "
        + " ".join(f"-S model.{key}={shlex.quote(str(v))}" for key, v in values.items())
    )
