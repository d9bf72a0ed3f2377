"""`tokenmill fetch`: text from a Hugging Face dataset, the web or a bucket, under DVC in data/raw.

A dataset of Hugging Face is a git repository with large files (Git LFS), so `dvc import` fetches it
at a revision. Of everything else `dvc import-url` records the hash or ETag. In both cases
`dvc update` fetches what is new at the source.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tokenmill.cli.main import Parser
from tokenmill.core.errors import UserError, first_line
from tokenmill.words.units import message, override, size

EXAMPLES = """\
  tokenmill fetch hf://datasets/OWNER/NAME/data      a folder of a dataset, to data/raw/NAME
  tokenmill fetch hf://datasets/OWNER/NAME@v1.0      all of it at a tag or commit, to data/raw/NAME
  tokenmill fetch https://example.org/books.jsonl.zst
  tokenmill fetch s3://bucket/books --name library   to data/raw/library
"""

RAW = Path("data/raw")

DATASET = re.compile(r"hf://datasets/(\w[\w.-]*/\w[\w.-]*)(?:@([^/]+))?(?:/(.+?))?/?")
"""Matches an address of Hugging Face: owner/name, revision, path."""


def add_arguments(parser: Parser) -> None:
    """Declare the address, and the name in data/raw."""
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help="hf://datasets/OWNER/NAME[@REVISION][/PATH], or any of DVC's",
    )
    parser.add_argument(
        "--name", help="of the folder or file in data/raw (default: the last name of the address)"
    )


def run(options: argparse.Namespace) -> None:
    """Let DVC fetch the text, and say what to type next.

    Raises:
        UserError: the address is not understood or is not there, or its files would leave the
            folder or not fit on the disk.
    """
    target, command = planned(options.address, options.name)
    if target.exists() or target.with_name(f"{target.name}.dvc").exists():
        raise UserError(
            f"{target} exists; `dvc update {target}.dvc` brings what is new there, --name another "
            "copy."
        )
    if not Path(".dvc").is_dir():
        raise UserError(f"{Path.cwd()} is no project; run the command in the project's root.")
    if command[0] == "import-url":
        check_listing(options.address)
    RAW.mkdir(parents=True, exist_ok=True)
    print(message(f"dvc {shlex.join(command)}"), flush=True)
    if subprocess.run([sys.executable, "-m", "dvc", *command], check=False).returncode:
        raise UserError(message(f"{options.address} was not fetched; DVC says above why."))
    print(f"to train on it: dvc exp run {override('data.raw', target.as_posix())}")


def planned(address: str, name: str | None = None) -> tuple[Path, list[str]]:
    """The path for an address in data/raw, and the DVC command that fetches it there.

    Example:
        >>> shlex.join(planned("hf://datasets/ada/books@v1/data")[1])
        'import https://huggingface.co/datasets/ada/books data -o data/raw/books --rev=v1'
    """
    parts = urlsplit(address)
    if not parts.scheme or not (parts.netloc or parts.path):
        raise UserError(
            f"{address} is no address such as hf://… or https://…; what is here already is for "
            "data.raw."
        )
    if parts.scheme != "hf":
        target = _target(address, name or (parts.path.rstrip("/") or parts.netloc))
        return target, ["import-url", address, target.as_posix()]
    found = DATASET.fullmatch(address)
    if not found:
        raise UserError(
            f"{address} is no dataset of Hugging Face; write "
            "hf://datasets/OWNER/NAME[@REVISION][/PATH]."
        )
    dataset, revision, path = found.groups()
    target = _target(address, name or (path if path and Path(path).suffix else dataset))
    repository = (
        f"{os.environ.get('HF_ENDPOINT', 'https://huggingface.co').rstrip('/')}/datasets/{dataset}"
    )
    at = [f"--rev={revision}"] if revision else []
    return target, ["import", repository, path or ".", "-o", target.as_posix(), *at]


def _target(address: str, path: str) -> Path:
    """The path in data/raw for an address, from the last name of `path`."""
    last = re.sub(r"[^\w.-]+", "-", path.rsplit("/", 1)[-1]).lstrip(".-")
    if not last:
        raise UserError(f"{address} ends in no name; give one by --name NAME.")
    return RAW / last


def check_listing(address: str) -> None:
    """Refuse names that lead out of the folder, which DVC 3.67 would follow, and more bytes than
    the disk has free."""
    from dvc.fs import parse_external_url  # noqa: PLC0415 (DVC)

    try:
        fs, root = parse_external_url(address)
        files: dict[str, Any] = (
            fs.fs.find(root, detail=True) if fs.isdir(root) else {root: fs.info(root)}
        )
    except FileNotFoundError:
        raise UserError(message(f"{address} cannot be read: nothing answers there.")) from None
    except Exception as error:  # each kind of server has its own
        raise UserError(message(f"{address} cannot be read: {first_line(error)}.")) from None
    for name in files:
        parts = [] if name == root else name.removeprefix(root).lstrip("/").split("/")
        if {"", ".", ".."} & set(parts) or "\\" in name:
            raise UserError(
                message(
                    f"{address} has a file whose name leads elsewhere ({name}); take another "
                    "folder."
                )
            )
    total = sum(info.get("size") or 0 for info in files.values())
    free = shutil.disk_usage(".").free
    if total > free:
        raise UserError(
            message(f"{address} takes {size(total)}, and {size(free)} are free here; make room.")
        )
