"""The data side, stage by stage, and its peers on the same text, in one run: `python -m
bench.data`.

The corpus is made by bench/data/corpus.py from the text at --text (default: the built-in sample).
Each job has a process of its own, all jobs once, then all again (--repeat); the figures are
medians. Prints tables and, with --json FILE, writes the same figures and more. bench/README.md
explains how to read it.

    python -m bench.data --text /path/to/texts                          # 100 MB, with all peers
    python -m bench.data --text /path/to/texts --megabytes 4000 --stages-only --json 4gb.json
    python -m bench.data --compare 1gb.json 4gb.json                    # how memory grows
"""

import argparse
import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from rich.progress import track

from bench.data import limits, measure, parts, peers, tables
from bench.data.corpus import FORMATS, Corpus, write_corpus, write_excerpts
from bench.data.jobs import STAGES
from bench.data.project import (
    add_text_arguments,
    clean_text,
    folder_bytes,
    make_project,
    read_text,
)
from bench.machine import machine
from bench.program import command_line, write_figures
from tokenmill.core import paths
from tokenmill.formats.metrics import TokensMetrics, read_metrics
from tokenmill.stage import report_errors


def main() -> None:
    """Do what the command line says."""
    report_errors(lambda: run(parsed()))


def run(options: argparse.Namespace) -> None:
    """Measure and print, or compare two earlier runs."""
    if options.compare:
        tables.print_growth(*(json.loads(path.read_text("utf-8")) for path in options.compare))
        return
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-", dir=options.scratch) as folder:
        figures = measured(Path(folder), options)
    tables.print_all(figures)
    write_figures(options.json, figures)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = command_line(__doc__)
    add_text_arguments(parser)
    parser.add_argument("--megabytes", type=int, default=100, help="size of the corpus (100)")
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0])
    parser.add_argument(
        "--vocabulary", type=int, default=32_000, help="entries of the tokenizer (32000)"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of each job (3)")
    parser.add_argument("--stages-only", action="store_true", help="without the peers")
    parser.add_argument(
        "--compare",
        type=Path,
        nargs=2,
        metavar="JSON",
        help="two earlier runs: only compare memory",
    )
    return parser.parse_args()


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
            folder.name: folder_bytes(here / folder)
            for folder in (paths.CLEAN, paths.PACKED, paths.TOKENS)
        },
    }


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
    tokenizer = paths.TOKENIZER.parent
    shutil.copytree(here / tokenizer, origin / tokenizer)
    measure.run("tokenize", origin)
    return {
        name: round(1 / read_metrics(TokensMetrics, project).compression_ratio, 4)
        for name, project in (("corpus", here), ("text", origin))
    }


if __name__ == "__main__":
    main()
