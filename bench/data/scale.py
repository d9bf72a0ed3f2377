"""What 100 GB, 1 TB and 10 TB would take: `python -m bench.data.scale` prints the tables of
docs/scale.md from the rates in bench/data/figures.json, or in another file of `bench.data --json`.

The model: a stage goes at its rate per core, in processor seconds, times cores, the further ones at
EFFICIENCY, until something that does not grow with the cores is slower (`limit`, the disk). The
tokenizer learns from a bounded sample, for which bounded text is read. DVC reads every dependency
and output once more for its hashes, in one process. Nothing here was measured at these sizes.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.program import command_line
from tokenmill.data.duplicates import HERE_BYTES
from tokenmill.formats.shards import ROW_GROUP_BYTES
from tokenmill.stage import report_errors
from tokenmill.tokens.corpus import PLACES

FIGURES = Path(__file__).with_name("figures.json")

EFFICIENCY = 0.6
"""Of another core, beside the two measured ones: hyper-threads, memory bandwidth, waiting."""

STAGES = ("clean", "tokenize", "unpack")

TOKENIZER_SAMPLE = 1e8
"""Bytes of text that the tokenizer learns from at most, whatever the corpus."""

SAMPLED_BYTES = PLACES * ROW_GROUP_BYTES
"""Bytes of text that are read for it at most."""

DOCUMENT_BYTES = 2_000

HASH_BYTES = 16
"""Memory that a document's hash takes at most."""

SIZES = {"100 GB": 1e11, "1 TB": 1e12, "10 TB": 1e13}


@dataclass(frozen=True)
class Machine:
    """Something that one can rent."""

    name: str
    cores: int
    memory: float
    """Bytes."""
    disk: float
    """Bytes of local NVMe."""
    disk_rate: float
    """Bytes a second, read or written."""
    dollars: float
    """An hour."""


MACHINES = (
    Machine("laptop", 8, 16 * 2**30, 1.0e12, 2.0e9, 0.0),
    Machine("i3en.2xlarge", 8, 64 * 2**30, 5.0e12, 1.0e9, 0.904),
    Machine("i3en.6xlarge", 24, 192 * 2**30, 15.0e12, 2.0e9, 2.712),
    Machine("i3en.24xlarge", 96, 768 * 2**30, 60.0e12, 8.0e9, 10.848),
)
"""AWS, Northern Virginia, on demand: prices as in SkyPilot's catalogue (catalogs/v8/aws/vms.csv,
commit 00148f2); disk rates are assumptions. The laptop is one that its owner has already."""


@dataclass(frozen=True)
class Hours:
    """How long each part takes."""

    clean: float
    tokenizer: float
    tokenize: float
    unpack: float
    dvc: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.clean + self.tokenizer + self.tokenize + self.unpack + self.dvc


def hours(figures: dict[str, Any], machine: Machine, size: float) -> Hours:
    """The time of each part for `size` bytes of text on `machine`."""
    share = shares(figures)
    work = {name: seconds(figures, machine, size, name, share[name]) for name in STAGES}
    few, read = min(size, TOKENIZER_SAMPLE), min(size, SAMPLED_BYTES)
    tokenizer = (
        few / rate(figures, machine, "tokenizer") + read / limits(figures)["read clean text"]
    )
    hashed = size * on_disk(share)
    return Hours(
        tokenizer=tokenizer / 3600,
        dvc=hashed / limits(figures)["MD5"] / 3600,
        **{name: s / 3600 for name, s in work.items()},
    )


def limits(figures: dict[str, Any]) -> dict[str, float]:
    """Bytes a second of the parts that do not grow with the cores."""
    return {name: rate * 1e6 for name, rate in figures["jobs"]["limits"]["limits"].items()}


def limit(figures: dict[str, Any], size: float, stage: str) -> float:
    """Bytes of text a second that one thread does for a stage, however many cores there are. In
    larger texts, tasks find the duplicates."""
    one_thread = stage == "clean" and size <= HERE_BYTES
    return limits(figures)["find duplicates"] if one_thread else math.inf


def shares(figures: dict[str, Any]) -> dict[str, float]:
    """Bytes on disk for a byte of text: of each artefact, and moved by each stage."""
    text = figures["corpus"]["text_bytes"]
    parquet, packed, tokens = (
        figures["sizes"][name] / text for name in ("clean", "packed", "tokens")
    )
    moved = {"clean": 1 + parquet, "tokenize": parquet + packed, "unpack": packed + tokens}
    return {"parquet": parquet, "packed": packed, "tokens": tokens} | moved


def on_disk(share: dict[str, float]) -> float:
    """Bytes of the raw text and of all artefacts for a byte of text."""
    return 1 + share["parquet"] + share["packed"] + share["tokens"]


def seconds(
    figures: dict[str, Any], machine: Machine, size: float, stage: str, moved: float
) -> float:
    """The slowest of cores, what is serial, and disk decides."""
    serial = limit(figures, size, stage)
    return size / min(rate(figures, machine, stage), serial, machine.disk_rate / moved)


def rate(figures: dict[str, Any], machine: Machine, stage: str) -> float:
    """Bytes of text a second, by the cores alone."""
    cores = figures["machine"]["cores"]
    return per_core(figures, stage) * (cores + EFFICIENCY * max(0, machine.cores - cores))


def per_core(figures: dict[str, Any], stage: str) -> float:
    """Bytes of text that the run did in a processor second."""
    size = figures["corpus"]["text_bytes"]
    if stage == "tokenizer":
        size = min(size, TOKENIZER_SAMPLE)
    return size / figures["jobs"][stage]["cpu"]


def rates_table(figures: dict[str, Any]) -> str:
    """The rates that the other tables are computed from, as Markdown."""
    names = ("clean", "tokenizer", "tokenize", "unpack")
    lines = ["| part | MB/s |", "| --- | --- |"]
    lines += [f"| stage {name}, a core | {per_core(figures, name) / 1e6:,.0f} |" for name in names]
    lines += [f"| {name} | {value / 1e6:,.0f} |" for name, value in limits(figures).items()]
    return "\n".join(lines)


def needs_table(figures: dict[str, Any]) -> str:
    """Documents, memory and disk of each size, as Markdown."""
    peak = max(figures["jobs"][name]["peak_mib"] for name in (*STAGES, "tokenizer")) * 2**20
    share = shares(figures)
    lines = ["| text | documents | memory, GB | disk, TB |", "| --- | --- | --- | --- |"]
    for name, size in SIZES.items():
        documents = size / DOCUMENT_BYTES
        disk = size * on_disk(share)
        memory = (peak + documents * HASH_BYTES) / 1e9
        lines.append(
            f"| {name} | {documents / 1e6:,.0f} million | {memory:.1f} | {disk / 1e12:.2f} |"
        )
    return "\n".join(lines)


def hours_table(figures: dict[str, Any]) -> str:
    """Hours and dollars of each size on each machine, as Markdown."""
    columns = "text | machine | clean | tokenizer | tokenize | unpack | DVC | hours | dollars"
    lines = [f"| {columns} |", "|" + " --- |" * 9]
    lines += [
        row(name, size, machine, hours(figures, machine, size), shares(figures))
        for name, size in SIZES.items()
        for machine in MACHINES
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the tables as Markdown."""
    parser = command_line(__doc__, figures=False)
    parser.add_argument("figures", type=Path, nargs="?", default=FIGURES, help="a file of rates")
    options = parser.parse_args()
    report_errors(lambda: print_tables(options.figures))


def print_tables(file: Path) -> None:
    """All tables, from the rates in a file."""
    figures = json.loads(file.read_text("utf-8"))
    print(rates_table(figures), needs_table(figures), hours_table(figures), sep="\n\n")


def row(name: str, size: float, machine: Machine, took: Hours, share: dict[str, float]) -> str:
    """One line of the table; a machine whose disk is too small says so."""
    if size * on_disk(share) > machine.disk:
        return f"| {name} | {machine.name} | its disk is too small | | | | | | |"
    parts = (took.clean, took.tokenizer, took.tokenize, took.unpack, took.dvc, took.total)
    cells = " | ".join(f"{part:.1f}" for part in parts)
    return f"| {name} | {machine.name} | {cells} | {took.total * machine.dollars:,.0f} |"


if __name__ == "__main__":
    main()
