"""A project in which stages run, and the text from which a benchmark makes its input."""

import argparse
from itertools import chain
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from bench.data import measure
from bench.data.corpus import SOURCE_BYTES, Source, read_source
from bench.program import ROOT
from tokenmill.tokens.corpus import sample


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the text, and where there is room."""
    parser.add_argument(
        "--text",
        type=Path,
        help="a file or a folder to make the input from; default: the built-in sample",
    )
    parser.add_argument("--scratch", type=Path, help="where there is room; default: TMPDIR")


def clean_text(project: Path, text: Path | None) -> None:
    """Clean what the corpus is made from, of any format that the stage `clean` reads."""
    make_project(
        project,
        text.resolve() if text else Path("data/raw/sample"),
        {"clean": {"mode": "none", "text_file": "paragraph"}},
    )
    if text is None:
        measure.run("sample", project)
    measure.run("clean", project)


def read_text(project: Path, *, escaped: bool) -> Source:
    """The documents of a cleaned text, ready to make a corpus from."""
    texts = chain.from_iterable(sample(project / "data/clean", SOURCE_BYTES))
    return read_source(texts, escaped=escaped)


def make_project(
    folder: Path, raw: Path, changes: dict[str, dict[str, Any]], code: Path = ROOT
) -> None:
    """A folder that the stages can run in: the params.yaml of the checkout `code` with
    `changes`."""
    yaml = YAML()
    params = yaml.load(code / "params.yaml")
    for section, values in ({"data": {"raw": str(raw)}} | changes).items():
        params[section].update(values)
    folder.mkdir()
    yaml.dump(params, folder / "params.yaml")


def folder_bytes(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.iterdir())
