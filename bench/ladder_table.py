"""The ladder's rows as a table and as a picture, beside the original's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.rungs import PLAIN, Size
from bench.turns import Timed
from tokenmill.model.size import flops_per_token

ORIGINAL = dict(zip(PLAIN, (1.6, 0.8, 0.5, 0.35, 0.225, 0.1), strict=True))
"""Seconds a step of the original script on an A100, rung by rung."""
HERE, THEIRS = "#1f6f8b", "#c9c9c9"
LEGEND: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 2}
Row = dict[str, Any]


def rows_of(climbed: Mapping[str, Timed], size: Size, peak: float) -> list[Row]:
    """A row for each rung; one that was left out has the reason instead of times."""
    rows: list[Row] = []
    bottom = next((one for one in climbed.values() if not one.failed), None)
    for name, one in climbed.items():
        row: Row = {"rung": name}
        if one.failed or bottom is None:
            row["left out"] = one.failed
        else:
            tokens = size.batch * size.context_length
            row["seconds a step"] = float(f"{one.seconds:.4g}")
            row["tokens/s"] = round(tokens / one.seconds)
            row["utilisation"] = round(flops_per_token(size.config(name)) * tokens / one.seconds / peak, 4)
            row["times the first"] = round(one.times(bottom), 2)
            row["first step, s"] = round(one.first, 1)
        if name in ORIGINAL:
            row["original, s"] = ORIGINAL[name]
            row["original, times"] = round(ORIGINAL["memory map"] / ORIGINAL[name], 1)
        rows.append(row)
    return rows


def print_table(rows: list[Row]) -> None:
    """One line a rung, then a sentence for each that was left out."""
    columns = ("rung", "seconds a step", "tokens/s", "utilisation", "times the first", "first step, s")
    columns += ("original, s", "original, times")
    columns = tuple(name for name in columns if any(name in row for row in rows))
    cells = [[_cell(name, row.get(name)) for name in columns] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in cells)) for i, name in enumerate(columns)]
    for line in (columns, *cells):
        first, *others = (
            f"{cell:<{w}}" if i == 0 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join([first, *others]).rstrip())
    for row in rows:
        if reason := row.get("left out"):
            print(f"left out: {row['rung']}: {reason}")


def _cell(column: str, value: Any) -> str:
    if value is None:
        return ""
    if column == "utilisation":
        return f"{value:.1%}"
    return f"{value:,}" if column == "tokens/s" else str(value)


def draw(rows: list[Row], device: str, path: Path) -> None:
    """Seconds a step, rung by rung, beside the original's, on a logarithmic axis."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 (takes a second to load)

    figure, axes = plt.subplots(figsize=(9, 4.2))
    done = [(place, row) for place, row in enumerate(rows) if "seconds a step" in row]
    known = [(place, row) for place, row in enumerate(rows) if "original, s" in row]
    bars = axes.bar(
        np.array([place for place, _ in done]) - 0.2, [row["seconds a step"] for _, row in done], 0.38, color=HERE
    )
    axes.bar_label(bars, [f"{row['times the first']:g}x" for _, row in done], fontsize=8, padding=2)
    theirs = axes.bar(
        np.array([place for place, _ in known]) + 0.2, [row["original, s"] for _, row in known], 0.38, color=THEIRS
    )
    axes.bar_label(theirs, [f"{row['original, times']:g}x" for _, row in known], fontsize=8, padding=2, color="#777777")
    axes.set_yscale("log")
    axes.margins(y=0.12)
    for place, row in enumerate(rows):
        if "left out" in row:
            axes.text(
                place - 0.2,
                0.03,
                "left out",
                rotation=90,
                ha="center",
                fontsize=8,
                color="#777777",
                transform=axes.get_xaxis_transform(),
            )
    axes.set_xticks(range(len(rows)), [row["rung"].replace(", ", ",\n") for row in rows], fontsize=9)
    axes.set_ylabel("seconds a step")
    axes.legend([bars, theirs], [f"here: {device}", "the original script, A100"], frameon=False, fontsize=9, **LEGEND)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", length=0)
    figure.tight_layout()
    figure.savefig(path, facecolor="white")
    plt.close(figure)
