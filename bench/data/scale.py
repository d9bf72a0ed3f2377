"""What 100 GB, 1 TB and 10 TB would take: `python -m bench.data.scale FIGURES.json` prints the
tables of docs/scale.md.

The model, from the rates of one run of bench.data: a stage goes at the measured rate per core,
times cores, the further ones at EFFICIENCY, until something that does not grow with the cores is
slower (SERIAL, the disk). The tokenizer learns from a bounded sample, at the measured rate. DVC
reads every dependency and output once more for its hashes, in one process. Nothing here was
measured at these sizes.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EFFICIENCY = 0.6
"""Of another core, beside the two measured ones: hyper-threads, memory bandwidth, waiting."""

SERIAL = {"clean": 380e6, "tokenize": 360e6, "unpack": 1150e6}
"""Bytes of text a second that do not grow with the cores: one thread that writes parquet; two
threads of zstd; one that decompresses (bench/README.md, "What limits each stage")."""

DVC_RATE = 700e6
"""Bytes a second that DVC hashes (MD5)."""

TOKENIZER_SAMPLE = 1e8
"""Bytes of text that the tokenizer learns from at most, whatever the corpus."""

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
    work = {name: seconds(figures, machine, size, name, share[name]) for name in SERIAL}
    few = min(size, TOKENIZER_SAMPLE)
    tokenizer = few / measured(figures, "tokenizer") + size * share["parquet"] / machine.disk_rate
    hashed = size * (1 + share["parquet"] + share["packed"] + share["tokens"])
    return Hours(
        tokenizer=tokenizer / 3600,
        dvc=hashed / DVC_RATE / 3600,
        **{name: s / 3600 for name, s in work.items()},
    )


def shares(figures: dict[str, Any]) -> dict[str, float]:
    """Bytes on disk for a byte of text: of each artefact, and moved by each stage."""
    text = figures["corpus"]["text_bytes"]
    parquet, packed, tokens = (
        figures["sizes"][name] / text for name in ("clean", "packed", "tokens")
    )
    moved = {"clean": 1 + parquet, "tokenize": parquet + packed, "unpack": packed + tokens}
    return {"parquet": parquet, "packed": packed, "tokens": tokens} | moved


def seconds(
    figures: dict[str, Any], machine: Machine, size: float, stage: str, moved: float
) -> float:
    """The slowest of cores, what is serial, and disk decides."""
    slowest = min(rate(figures, machine, stage), SERIAL[stage], machine.disk_rate / moved)
    return size / slowest


def rate(figures: dict[str, Any], machine: Machine, stage: str) -> float:
    """Bytes of text a second, by the cores alone."""
    cores = figures["machine"]["cores"]
    return measured(figures, stage) / cores * (cores + EFFICIENCY * max(0, machine.cores - cores))


def measured(figures: dict[str, Any], stage: str) -> float:
    """Bytes of text a second of the run."""
    return figures["jobs"][stage]["MB/s"] * 1e6


def main(path: str) -> None:
    """Print both tables as Markdown."""
    figures = json.loads(Path(path).read_text())
    peak = max(figures["jobs"][name]["peak_mib"] for name in (*SERIAL, "tokenizer")) * 2**20
    share = shares(figures)
    print("| text | documents | memory, GB | disk, TB |\n| --- | --- | --- | --- |")
    for name, size in SIZES.items():
        documents = size / DOCUMENT_BYTES
        disk = size * (1 + share["parquet"] + share["packed"] + share["tokens"])
        memory = (peak + documents * HASH_BYTES) / 1e9
        print(f"| {name} | {documents / 1e6:,.0f} million | {memory:.1f} | {disk / 1e12:.2f} |")
    print("\n| text | machine | clean | tokenizer | tokenize | unpack | DVC | hours | dollars |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, size in SIZES.items():
        for machine in MACHINES:
            print(row(name, size, machine, hours(figures, machine, size), share))


def row(name: str, size: float, machine: Machine, took: Hours, share: dict[str, float]) -> str:
    """One line of the table; a machine whose disk is too small says so."""
    if size * (1 + share["parquet"] + share["packed"] + share["tokens"]) > machine.disk:
        return f"| {name} | {machine.name} | its disk is too small | | | | | | |"
    parts = (took.clean, took.tokenizer, took.tokenize, took.unpack, took.dvc, took.total)
    cells = " | ".join(f"{part:.1f}" for part in parts)
    return f"| {name} | {machine.name} | {cells} | {took.total * machine.dollars:,.0f} |"


if __name__ == "__main__":
    main(sys.argv[1])
