"""The index of the training text and the search in it, beside infini-gram's: `python -m
bench.index`.

The text is made as that of bench.data, from the one at --text (default: the built-in sample), up to
about --tokens; or it is that of a project, in which the stage `unpack` has run. The index is made,
and then asked for the phrases of texts of 200 tokens: of the training text, of the validation text,
and both alternating, five tokens of each. infini-gram (Liu et al. 2024) is the engine of OLMoTrace:
it makes one suffix array of all tokens, and its `attribute` asks for the same, spans that cannot be
made longer, in C++. `pip install infini-gram` adds it. Without an index, `bytes.find` looks for one
phrase.

    python -m bench.index --text /path/to/texts --tokens 300000000
    python -m bench.index --project .
"""

# pyright: reportMissingImports=false

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.data import measure
from bench.data.corpus import write_corpus
from bench.data.jobs import STAGES, Facts, Work
from bench.data.project import (
    add_text_arguments,
    clean_text,
    folder_bytes,
    make_project,
    read_text,
)
from bench.machine import machine
from bench.program import command_line, verdict, write_figures
from tokenmill.core import paths
from tokenmill.formats.token_file import read_metadata
from tokenmill.formats.token_index import open_index
from tokenmill.formats.token_row import document_ends, open_tokens
from tokenmill.formats.tokenizer import TextTokenizer, read_tokenizer, token_bytes
from tokenmill.stage import report_errors
from tokenmill.tokens.search import Search

BYTES_PER_TOKEN = 4.1
"""About; a text of so many bytes is made for each token."""

QUERIES = 50
"""Texts of each kind."""

QUERY_TOKENS = 200

MIN_WORDS = 4
"""The fewest words of a span, and for infini-gram, which counts none, the fewest tokens."""

MOST = 1 << 30
"""infini-gram leaves out spans that stand at more places than this."""

SNIPPET = 5
"""Tokens in a row from the training text, then from the validation text, in the mixed queries."""

THEIRS = Path("infini-gram")
"""The folder of infini-gram's index, in the project."""

DELIMITER = 0xFFFF
"""What infini-gram has before each document."""

MEMORY_GIB = 4
"""What infini-gram is given to make its index."""

TARGET_MS = 50
"""Milliseconds of the slowest query."""

Asked = Callable[[list[int]], int]
"""Asks for the spans of a text, and returns how many there are."""


@dataclass
class Took:
    """What a contender took for texts of one kind."""

    clock: list[float] = field(default_factory=list)
    """Milliseconds of each text, by the clock and of the processor."""
    cpu: list[float] = field(default_factory=list)
    spans: int = 0
    """The number of spans found in all."""

    def time(self, ask: Asked, ids: list[int]) -> None:
        """Ask for one text more."""
        clock, cpu = time.perf_counter(), time.process_time()
        self.spans += ask(ids)
        self.cpu.append(1000 * (time.process_time() - cpu))
        self.clock.append(1000 * (time.perf_counter() - clock))


def main() -> None:
    """Do what the command line says."""
    report_errors(lambda: run(parsed()))


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-", dir=options.scratch) as folder:
        project = options.project or made(Path(folder), options)
        jobs = {
            name: measure.run(name, project)
            for name in ("index", "infini-gram index", "queries", "bytes.find")
        }
        figures = figures_of(project, jobs)
    print_all(figures)
    write_figures(options.json, figures)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = command_line(__doc__)
    add_text_arguments(parser)
    parser.add_argument(
        "--tokens", type=int, default=2_000_000, help="of the text, about (default 2000000)"
    )
    parser.add_argument(
        "--vocabulary", type=int, default=32_000, help="entries of the tokenizer (32000)"
    )
    parser.add_argument(
        "--project", type=Path, help="a project whose text is indexed instead; data/index is new"
    )
    return parser.parse_args()


def made(folder: Path, options: argparse.Namespace) -> Path:
    """A project with a text of about so many tokens."""
    clean_text(folder / "origin", options.text)
    source = read_text(folder / "origin", escaped=True)
    project = folder / "project"
    raw = Path("data/raw/corpus.jsonl")
    make_project(
        project,
        raw,
        {
            "clean": {"text_file": "file"},
            "tokenizer": {"vocab_size": options.vocabulary},
            "trace": {"max_tokens": 10**12},
        },
    )
    write_corpus(source, project / raw, int(options.tokens * BYTES_PER_TOKEN), "jsonl")
    for stage in STAGES:
        measure.run(stage, project)
    return project


def index_work() -> Work:
    """The stage `index`."""
    from stages.index import main as stage  # noqa: PLC0415 (what a stage imports)

    def work() -> Facts:
        stage()
        return {"bytes": folder_bytes(paths.INDEX)}

    return work


def infini_gram_index() -> Work:
    """Its index of the same tokens, as its own program makes it of tokens that are there."""
    from infini_gram import indexing  # noqa: PLC0415 (may be missing)

    assert read_metadata(paths.TOKENS).vocab_size < DELIMITER
    ids = np.asarray(open_tokens(paths.TOKENS, "train"))
    ends = document_ends(ids, read_metadata(paths.TOKENS).eot_id)
    written = np.empty(len(ids), dtype=np.uint16)
    written[1:] = ids[:-1]
    begins = np.append(0, ends[:-1])
    written[begins] = DELIMITER  # before each document, where ours has end-of-text behind it
    THEIRS.mkdir()
    written.tofile(THEIRS / "tokenized.0")
    (begins * 2).astype(np.uint64).tofile(THEIRS / "offset.0")
    del ids, written
    folder = str(THEIRS.resolve())
    options = ["--mem", str(MEMORY_GIB), "--cpus", str(os.cpu_count()), "--ulimit", "1024"]
    command = [sys.executable, "-m", indexing.__name__, "--data_dir", folder]

    def work() -> Facts:
        subprocess.run([*command, "--save_dir", folder, *options], check=True, capture_output=True)
        return {"bytes": folder_bytes(THEIRS)}

    return work


def queries() -> Work:
    """Both answer the same texts alternately, each text twice; the second answer is timed."""
    tokenizer = read_tokenizer(paths.TOKENIZER)
    began = time.perf_counter()
    search = Search(open_index(paths.INDEX, paths.TOKENS), tokenizer)
    opened = time.perf_counter() - began
    ask: dict[str, Asked] = {"TokenMill": lambda ids: len(search.spans(ids, min_words=MIN_WORDS))}
    if THEIRS.exists():
        ask["infini-gram"] = _infini_gram(tokenizer)
    texts = _texts(np.asarray(open_tokens(paths.TOKENS, "val")), search.index.tokens)

    def work() -> Facts:
        found = {kind: {name: Took() for name in ask} for kind in texts}
        for kind, some in texts.items():
            for ids in some:
                for name, answer in ask.items():
                    answer(ids)
                    found[kind][name].time(answer, ids)
        took = {kind: {n: asdict(t) for n, t in times.items()} for kind, times in found.items()}
        return {"open_s": round(opened, 2), "ms": took}

    return work


def _infini_gram(tokenizer: TextTokenizer) -> Asked:
    """Its search for spans that begin where a word does, as far as a token alone tells."""
    from infini_gram.engine import InfiniGramEngine  # noqa: PLC0415 (may be missing)

    bow = THEIRS / "bow.txt"
    spelled = enumerate(token_bytes(tokenizer))
    begin = [number for number, token in spelled if not token[:1].isalnum()]
    bow.write_text("".join(f"{number}\n" for number in begin))
    engine = InfiniGramEngine(
        index_dir=str(THEIRS), eos_token_id=tokenizer.eot_id, bow_ids_path=str(bow)
    )

    def ask(ids: list[int]) -> int:
        found = engine.attribute(
            ids, delim_ids=[], min_len=MIN_WORDS, max_cnt=MOST, enforce_bow=True
        )
        return len(found["spans"])

    return ask


def _texts(val: np.ndarray, train: np.ndarray) -> dict[str, list[list[int]]]:
    """Texts of each kind to ask for, from random places."""
    draws = np.random.default_rng(0)

    def some(ids: np.ndarray, length: int) -> list[int]:
        start = int(draws.integers(0, max(1, len(ids) - length)))
        return ids[start : start + length].tolist()

    def mixed() -> list[int]:
        turns = QUERY_TOKENS // (2 * SNIPPET)
        return [token for _ in range(turns) for ids in (train, val) for token in some(ids, SNIPPET)]

    return {
        "training text": [some(train, QUERY_TOKENS) for _ in range(QUERIES)],
        "validation text": [some(val, QUERY_TOKENS) for _ in range(QUERIES)],
        "mixed": [mixed() for _ in range(QUERIES)],
    }


def scan() -> Work:
    """One phrase of ten tokens, which stands nowhere, looked for from the first byte to the
    last."""
    ids = np.asarray(open_tokens(paths.TOKENS, "train")).astype(np.uint32)
    phrase = np.append(ids[:9], np.uint32(read_metadata(paths.TOKENS).vocab_size)).tobytes()
    content = ids.tobytes()

    def work() -> Facts:
        assert content.find(phrase) == -1
        return {}

    return work


JOBS: dict[str, Callable[[], Work]] = {
    "index": index_work,
    "infini-gram index": infini_gram_index,
    "queries": queries,
    "bytes.find": scan,
}


def figures_of(project: Path, jobs: dict[str, measure.Run]) -> dict[str, Any]:
    """What was measured, as numbers."""
    train = read_metadata(project / paths.TOKENS).train
    return {
        "text": {"tokens": train.tokens, "bytes": train.bytes, "documents": train.documents},
        "machine": machine(),
        "jobs": {
            name: run.facts
            | {
                "seconds": round(run.seconds, 4),
                "cpu": round(run.cpu, 2),
                "private_mib": round(run.private_mib),
            }
            for name, run in jobs.items()
        },
    }


def print_all(figures: dict[str, Any]) -> None:
    """Two tables: making the index, and asking."""
    text, machine, jobs = (figures[name] for name in ("text", "machine", "jobs"))
    print(
        f"{text['tokens']:,} tokens, {text['bytes'] / 1e6:,.0f} MB of text; {machine['cores']} "
        f"cores, {machine['processor']}\n\n"
        f"{'making the index':20}{'seconds':>9}{'CPU s':>9}{'private MiB':>13}{'MB on disk':>12}"
    )
    for what, name in (("TokenMill", "index"), ("infini-gram", "infini-gram index")):
        job = jobs[name]
        print(
            f"{what:20}  not measured: {job['missing']} is missing"
            if "missing" in job
            else f"{what:20}{job['seconds']:9.1f}{job['cpu']:9.1f}{job['private_mib']:13,}"
            f"{job['bytes'] / 1e6:12,.0f}"
        )
    asked = jobs["queries"]
    print(
        f"\nopening it takes {asked['open_s']} s\n\n{'asking, ms':20}{'of':18}"
        f"{'median':>8}{'slowest':>9}{'CPU':>8}{'slowest':>9}{'spans':>7}"
    )
    for kind, contenders in asked["ms"].items():
        for what, took in contenders.items():
            clock, cpu = (
                f"{statistics.median(took[by]):8.1f}{max(took[by]):9.1f}" for by in ("clock", "cpu")
            )
            met = verdict(max(took["clock"]) <= TARGET_MS) if what == "TokenMill" else ""
            print(f"{what:20}{kind:18}{clock}{cpu}{took['spans']:7,}  {met}")
    seconds = jobs["bytes.find"]["seconds"]
    print(f"{'bytes.find':20}{'one phrase':18}{1000 * seconds:8.1f}\n\ntarget: {TARGET_MS} ms")


if __name__ == "__main__":
    main()
