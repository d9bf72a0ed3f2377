"""The figures of `bench.data` as tables, beside their targets."""

from dataclasses import dataclass
from typing import Any

from bench.data.jobs import STAGES
from bench.program import verdict

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
