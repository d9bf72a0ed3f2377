"""How the data side grows with its input: `python -m bench.data.growth --text /path/to/texts`.

The four stages run on 0.1, 1 and 4 GB of JSON lines, and on 1,000, 10,000 and 100,000 text files of
one document each, all made by bench/data/corpus.py. Each stage has a process of its own. Rows give
its seconds, its processor seconds and its peak memory. The seconds are those of the work, without
the interpreter's start and the imports.

The exponent says how processor seconds grow with the input: 1 is in proportion. The scratch folder
needs three times the largest input; it is emptied after each.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from bench.data import measure
from bench.data.corpus import Source, documents, write_corpus
from bench.data.jobs import STAGES
from bench.data.project import add_text_arguments, clean_text, make_project, read_text
from bench.program import RowFile, command_line, exponents
from tokenmill.core import paths
from tokenmill.formats.token_file import read_metadata
from tokenmill.stage import report_errors

CURVES = ("megabytes", "files")

MEGABYTES = (100, 1000, 4000)

FILES = (1_000, 10_000, 100_000)

FOLDER_FILES = 1000
"""Files in a folder, so that none has very many."""

TINY = ((1,), (40,))
"""Megabytes and files, to see that the benchmark runs."""


@dataclass(frozen=True)
class Input:
    """One input of a curve."""

    curve: str
    size: int
    """Megabytes or files."""
    raw: str
    """Where it lies in `data/raw`."""
    write: Callable[[Path], object]
    """Writes it there."""


def main() -> None:
    """Measure all inputs, and print rows and exponents."""
    parser = command_line(__doc__, tiny="small inputs")
    add_text_arguments(parser)
    parser.add_argument("--vocabulary", type=int, default=32_000, help="entries of the tokenizer")
    options = parser.parse_args()
    report_errors(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """Measure all inputs, the smallest first."""
    file = RowFile(options.json)
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-", dir=options.scratch) as folder:
        for one in inputs(Path(folder), options.text, tiny=options.tiny):
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                for row in rows_of(one, Path(scratch, "project"), options.vocabulary):
                    file.show(row)
    grown = exponents(file.rows, ["curve", "stage"], size="size", took="processor seconds")
    for (curve, stage), exponent in grown.items():
        print(f"{curve}, {stage}: processor seconds grow to the power {exponent:.2f}")


def inputs(folder: Path, text: Path | None, *, tiny: bool) -> Iterator[Input]:
    """The inputs of both curves, made from the same text."""
    megabytes, files = TINY if tiny else (MEGABYTES, FILES)
    clean_text(folder / "origin", text)
    lines = read_text(folder / "origin", escaped=True)
    for size in megabytes:
        write = partial(write_corpus, lines, size=size * 1_000_000, form="jsonl")
        yield Input(CURVES[0], size, "corpus.jsonl", write)
    plain = read_text(folder / "origin", escaped=False)
    for size in files:
        yield Input(CURVES[1], size, "texts", partial(write_files, plain, count=size))


def write_files(source: Source, folder: Path, count: int) -> None:
    """Write the first `count` documents to a file each."""
    for number, document in enumerate(islice(documents(source), count)):
        path = folder / f"{number // FOLDER_FILES:03}" / f"{number:06}.txt"
        if number % FOLDER_FILES == 0:
            path.parent.mkdir(parents=True)
        path.write_bytes(document)


def rows_of(one: Input, project: Path, vocabulary: int) -> Iterator[dict[str, Any]]:
    """A row for each stage on one input, and one for all of them."""
    raw = Path("data/raw", one.raw)
    make_project(project, raw, {"tokenizer": {"vocab_size": vocabulary}})
    one.write(project / raw)
    runs = {stage: measure.run(stage, project) for stage in STAGES}
    facts = {"curve": one.curve, "size": one.size, "text MB": text_megabytes(project)}
    for stage, done in runs.items():
        yield facts | {
            "stage": stage,
            "seconds": round(done.seconds, 3),
            "processor seconds": round(done.work_cpu, 4),
            "peak MiB": round(done.peak_mib),
        }
    yield facts | {
        "stage": "all",
        "seconds": round(sum(done.seconds for done in runs.values()), 3),
        "processor seconds": round(sum(done.work_cpu for done in runs.values()), 4),
        "peak MiB": round(max(done.peak_mib for done in runs.values())),
    }


def text_megabytes(project: Path) -> float:
    """MB of text that `clean` kept."""
    tokens = read_metadata(project / paths.TOKENS)
    return round((tokens.train.bytes + tokens.val.bytes) / 1e6, 1)


if __name__ == "__main__":
    main()
