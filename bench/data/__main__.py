"""The data side, stage by stage, and its peers on the same text, in one run: `python -m
bench.data`.

The corpus is made by bench/corpus.py from the text at --text (default: the built-in sample). Each
job has a process of its own, all jobs once, then all again (--repeat); the figures are medians.
Prints tables and, with --json FILE, writes the same figures and more. bench/README.md explains how
to read it.

    python -m bench.data --text /path/to/texts                          # 100 MB, with all peers
    python -m bench.data --text /path/to/texts --megabytes 4000 --stages-only --json 4gb.json
    python -m bench.data --compare 1gb.json 4gb.json                    # how memory grows
"""

import argparse
import dataclasses
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich.progress import track
from ruamel.yaml import YAML

from bench.data import limits, measure, parts, peers
from bench.data.corpus import (
    FORMATS,
    SOURCE_BYTES,
    Corpus,
    Source,
    read_source,
    write_corpus,
    write_excerpts,
)
from bench.data.jobs import STAGES
from bench.machine import processor
from tokenmill.tokens.corpus import sample

PACKAGES = (
    "datatrove",
    "ftfy",
    "gigatoken",
    "polars",
    "spacy",
    "tiktoken",
    "tokenizers",
    "zstandard",
)
"""Whose versions the figures depend on."""


def main() -> None:
    """Measure and print, or compare two earlier runs."""
    options = parsed(sys.argv[1:])
    if options.compare:
        measure.print_growth(*(json.loads(path.read_text()) for path in options.compare))
        return
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-", dir=options.scratch) as folder:
        figures = measured(Path(folder), options)
    measure.print_all(figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n")


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--text", type=Path, help="a file or a folder to make the corpus from; default: the sample"
    )
    parser.add_argument("--megabytes", type=int, default=100, help="size of the corpus (100)")
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0])
    parser.add_argument(
        "--vocabulary", type=int, default=32_000, help="entries of the tokenizer (32000)"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of each job (3)")
    parser.add_argument("--stages-only", action="store_true", help="without the peers")
    parser.add_argument(
        "--scratch",
        type=Path,
        help="where there is room for four times the corpus; default: TMPDIR",
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument(
        "--compare",
        type=Path,
        nargs=2,
        metavar="JSON",
        help="two earlier runs: only compare memory",
    )
    return parser.parse_args(arguments)


def measured(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Make the corpus and run all jobs."""
    origin = folder / "origin"
    here = folder / "corpus"
    clean_text(origin, options.text)
    source = read_text(origin, escaped=options.format != "txt")
    raw = Path("data/raw") / f"corpus.{options.format}"
    text_file = "paragraph" if options.format == "txt" else "file"
    make_project(
        here,
        raw,
        {"clean": {"text_file": text_file}, "tokenizer": {"vocab_size": options.vocabulary}},
    )
    made = write_corpus(source, here / raw, options.megabytes * 1_000_000, options.format)
    names = [*STAGES, *limits.JOBS]
    names += [] if options.stages_only else [*parts.JOBS, *peers.JOBS]
    if not options.stages_only:
        write_excerpts(source, here, made.text_bytes)
    runs: dict[str, list[measure.Run]] = {name: [] for name in names}
    for name in track(names * options.repeat, "runs", transient=True):
        runs[name].append(measure.run(name, here))
    return {
        "corpus": {
            "text": options.text.name if options.text else "built-in sample",
            "format": options.format,
        }
        | dataclasses.asdict(made),
        "machine": machine(),
        "jobs": {name: summary(some, made) for name, some in runs.items()},
        "packed": packed(origin, here),
        "sizes": {
            name: size_on_disk(here / "data" / name) for name in ("clean", "packed", "tokens")
        },
    }


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
    folder: Path, raw: Path, changes: dict[str, dict[str, Any]], code: Path = measure.ROOT
) -> None:
    """A folder that the stages can run in: the params.yaml of the checkout `code` with
    `changes`."""
    yaml = YAML()
    params = yaml.load(code / "params.yaml")
    for section, values in ({"data": {"raw": str(raw)}} | changes).items():
        params[section].update(values)
    folder.mkdir()
    yaml.dump(params, folder / "params.yaml")


def summary(runs: list[measure.Run], made: Corpus) -> dict[str, Any]:
    """Medians of all runs of one job, and what the last one said."""
    facts = runs[-1].facts
    if "missing" in facts:
        return facts
    seconds = median(run.seconds for run in runs)
    size = facts.setdefault("bytes", made.text_bytes)
    return {
        "seconds": round(seconds, 3),
        "MB/s": round(size / 1e6 / seconds, 2),
        "start_up": round(median(run.start_up for run in runs), 2),
        "cpu": round(median(run.cpu for run in runs), 2),
        "peak_mib": round(median(run.peak_mib for run in runs), 1),
        "all_seconds": [round(run.seconds, 3) for run in runs],
        **facts,
    }


def packed(origin: Path, here: Path) -> dict[str, Any]:
    """Size of .bin.zst in the size of .bin, of the corpus and of the text that it was made from."""
    shutil.copytree(here / "data/tokenizer", origin / "data/tokenizer")
    measure.run("tokenize", origin)
    numbers = {
        name: json.loads((folder / "metrics/tokens.json").read_text())
        for name, folder in (("corpus", here), ("text", origin))
    }
    return {name: round(1 / of["compression_ratio"], 4) for name, of in numbers.items()}


def size_on_disk(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.iterdir())


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "processor": processor(),
        "python": platform.python_version(),
        "packages": {name: installed for name in PACKAGES if (installed := version_of(name))},
    }


def version_of(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
