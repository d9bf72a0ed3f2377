"""Run one job in a process of its own and measure it from outside: time, processor seconds, peak
memory.

The job reports its own time and memory (bench/data/jobs.py). The processes that it starts are
measured from outside. The figures are printed as tables beside their targets.
"""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.data.jobs import STAGES

ROOT = Path(__file__).resolve().parents[2]

EVERY = 0.1
"""Seconds between two looks at the processes."""


@dataclass(frozen=True)
class Run:
    """One run of one job."""

    seconds: float
    """Of the job itself: the interpreter and the imports not counted."""
    start_up: float
    """Seconds for interpreter, imports and what the job prepares."""
    cpu: float
    """Processor seconds of the whole process tree."""
    work_cpu: float
    """Processor seconds of the job itself, in its own process."""
    peak_mib: float
    """Highest resident memory, of the process or, where there are several, of their sum as seen
    every EVERY seconds."""
    private_mib: float
    """The same without what files in the page cache take, as seen every EVERY seconds."""
    facts: dict[str, Any]
    """What the job says about itself; `bytes`, or `missing` with the package that it needs."""


@dataclass
class Watch:
    """Looks at a process and its children from time to time."""

    process: psutil.Process
    peak: int = 0
    private: int = 0
    cpu: dict[int, float] = field(default_factory=dict)

    def look(self) -> None:
        """Add up what the processes hold now."""
        held = shared = 0
        for one in [self.process, *self.process.children(recursive=True)]:
            try:
                memory = one.memory_info()
                held += memory.rss
                shared += getattr(memory, "shared", 0)
                times = one.cpu_times()
            except psutil.Error:
                continue
            self.cpu[one.pid] = times.user + times.system
        self.peak = max(self.peak, held)
        self.private = max(self.private, held - shared)

    def until(self, done: threading.Event) -> None:
        """Look until `done`."""
        while not done.wait(EVERY):
            try:
                self.look()
            except psutil.Error:
                return


def run(name: str, folder: Path) -> Run:
    """Run the job `name` in the project at `folder`.

    Raises:
        SystemExit: the job failed; shows what it said.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    command = [sys.executable, "-m", "bench.data.jobs", name, str(time.time())]
    done = threading.Event()
    with (
        (folder / "errors.txt").open("w+") as errors,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        watch = Watch(psutil.Process(process.pid))
        thread = threading.Thread(target=watch.until, args=(done,))
        thread.start()
        said = process.stdout.read()
        failed = process.wait()
        done.set()
        thread.join()
        if failed:
            errors.seek(0)
            sys.exit(f"error: {' '.join(command)} failed:\n{errors.read()[-4000:]}")
    facts = json.loads(said.splitlines()[-1])
    return Run(
        seconds=facts.pop("seconds", 0.0),
        start_up=facts.pop("start_up", 0.0),
        cpu=max(facts.pop("cpu", 0.0), sum(watch.cpu.values())),
        work_cpu=facts.pop("work_cpu", 0.0),
        peak_mib=max(facts.pop("peak_mib", 0.0), watch.peak / 2**20),
        private_mib=watch.private / 2**20,
        facts=facts,
    )


Figures = dict[str, Any]

MEMORY_TARGET_MIB = 500
"""Highest memory of a stage, however much text there is."""

GROWTH_TARGET = 0.15
"""How much more memory a stage may take for four times the text."""

SECONDS_TARGET = 30
"""For all four stages on 1 GB of text."""

SHARE_TARGET = 0.36
"""Of the .bin that the .bin.zst of English text has at most."""

PROJECTED_BYTES = 12e9


@dataclass(frozen=True)
class Comparison:
    """A job of ours beside one of a peer; the mark is how many times faster ours should be."""

    what: str
    ours: str
    theirs: str
    mark: float | None = None


COMPARISONS = (
    Comparison("learn BPE, against tokenizers' trainer", "learn", "learn by tokenizers", 10),
    Comparison("encode, against tokenizers encode_batch", "encode", "encode_batch", 15),
    Comparison("encode, against tokenizers encode_batch_fast", "encode", "encode_batch_fast"),
    Comparison("encode, against tokenizers encode, one chunk", "encode", "encode one chunk"),
    Comparison("encode, against tiktoken, same vocabulary", "encode", "tiktoken"),
    Comparison("encode, against datatrove's tokenizer step", "encode", "datatrove tokenize", 20),
    Comparison("stage tokenize, against the same step", "tokenize", "datatrove tokenize"),
    Comparison(
        "stage clean, against datatrove read + ftfy + write", "clean", "datatrove clean", 12
    ),
    Comparison(
        "stage clean, against the same in one worker", "clean", "datatrove clean, one worker"
    ),
    Comparison(
        "stage clean, against the same, written without gzip", "clean", "datatrove clean, plain"
    ),
    Comparison("Gopher rules, against datatrove's", "gopher", "datatrove gopher", 20),
    Comparison("zstd as packed, against gzip -6, on int32 tokens", "zstd", "gzip"),
)


def print_all(figures: Figures) -> None:
    """All tables of one run."""
    corpus = figures["corpus"]
    jobs = figures["jobs"]
    print(
        f"{corpus['text_bytes'] / 1e6:,.0f} MB of text in {corpus['documents']:,} documents "
        f"({corpus['format']}), made from {corpus['text']}\n{figures['machine']['cores']} cores, "
        f"{figures['machine']['processor']}\n"
    )
    print_stages(jobs, corpus["text_bytes"])
    if "encode" in jobs:
        print_comparisons(jobs)
    packed = figures["packed"]
    print(
        f"\n.bin.zst in .bin: {packed['text']:.1%} for the text, {packed['corpus']:.1%} for the "
        "corpus made of it"
    )
    print(f"  mark {SHARE_TARGET:.0%}: {verdict(packed['text'] <= SHARE_TARGET)}")


def print_stages(jobs: Figures, size: int) -> None:
    """The four stages, their sum, and what that makes for 12 GB."""
    print(f"{'stage':12}{'seconds':>9}{'MB/s':>9}{'start-up s':>12}{'CPU s':>9}{'peak MiB':>10}")
    for name in STAGES:
        job = jobs[name]
        print(
            f"{name:12}{job['seconds']:9.2f}{job['MB/s']:9.1f}"
            f"{job['start_up']:12.2f}{job['cpu']:9.1f}{job['peak_mib']:10.0f}"
        )
    start_up = sum(jobs[name]["start_up"] for name in STAGES)
    seconds = sum(jobs[name]["seconds"] for name in STAGES)
    print(
        f"all four {seconds + start_up:.1f} s with their start-up, {size / 1e6 / seconds:.1f} "
        "MB/s without"
    )
    print(
        f"12 GB would take {(seconds * PROJECTED_BYTES / size + start_up) / 60:.1f} minutes at "
        "these rates"
    )
    if size > 0.9e9:
        print(
            f"  mark {SECONDS_TARGET} s for 1 GB: "
            f"{verdict(seconds * 1e9 / size + start_up <= SECONDS_TARGET)}"
        )
    peak = max(jobs[name]["peak_mib"] for name in STAGES)
    print(
        f"highest memory {peak:.0f} MiB\n  mark {MEMORY_TARGET_MIB} MiB: "
        f"{verdict(peak <= MEMORY_TARGET_MIB)}"
    )


def print_comparisons(jobs: Figures) -> None:
    """Ours and theirs, MB of text a second, side by side."""
    print(f"\n{'what':52}{'MB/s':>8}{'theirs':>8}{'ratio':>8}  mark")
    for row in COMPARISONS:
        ours = jobs.get(row.ours, {"missing": row.ours})
        theirs = jobs.get(row.theirs, {"missing": row.theirs})
        if missing := ours.get("missing") or theirs.get("missing"):
            print(f"{row.what:52}  not measured: {missing} is missing")
            continue
        ratio = ours["MB/s"] / theirs["MB/s"]
        mark = f"  {row.mark:g}x: {verdict(ratio >= row.mark)}" if row.mark else ""
        print(f"{row.what:52}{ours['MB/s']:8.1f}{theirs['MB/s']:8.1f}{ratio:7.1f}x{mark}")
    if same := jobs["tiktoken"].get("same ids"):
        print(f"tiktoken gives the ids of tokenizers for {same}")


def print_growth(small: Figures, large: Figures) -> None:
    """Peak memory of every stage in two runs, and how much more the larger corpus takes."""
    sizes = [figures["corpus"]["text_bytes"] / 1e9 for figures in (small, large)]
    print(f"{'stage':12}{sizes[0]:7.2f} GB{sizes[1]:7.2f} GB   growth   peak memory in MiB")
    for name in STAGES:
        before, after = (figures["jobs"][name]["peak_mib"] for figures in (small, large))
        growth = after / before - 1
        within = after <= MEMORY_TARGET_MIB and growth <= GROWTH_TARGET
        print(f"{name:12}{before:10.0f}{after:10.0f}{growth:+9.1%}   {verdict(within)}")
    print(f"  mark: at most {MEMORY_TARGET_MIB} MiB, and at most {GROWTH_TARGET:.0%} more")


def verdict(met: bool) -> str:
    """Plain words."""
    return "met" if met else "MISSED"
