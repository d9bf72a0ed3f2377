"""What a long training keeps: `python -m bench.training.long_run`.

Memory, open files and disk of a real training of thousands of steps with hundreds of checkpoints,
sampled from outside while it runs. All three must stay level once training is under way.
"""

import importlib.util
import multiprocessing
import os
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench.program import command_line, write_figures
from tokenmill.stage import report_errors

MODEL = {"n_layer": 2, "n_head": 2, "n_embd": 64, "context_length": 64}
EPOCH_STEPS = 1000
BETWEEN_CHECKPOINTS = 25
SECONDS_BETWEEN_SAMPLES = 0.5

Row = dict[str, float]


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__)
    parser.add_argument("--epochs", type=int, default=12, help=f"of {EPOCH_STEPS:,} steps each")
    parser.add_argument("--picture", type=Path, help="draw the samples into this file")
    options = parser.parse_args()
    if options.picture and not importlib.util.find_spec("matplotlib"):
        parser.error("--picture needs matplotlib: pip install matplotlib")
    report_errors(lambda: run(options.epochs, options.picture, options.json))


def run(epochs: int, picture: Path | None, file: Path | None) -> None:
    """A training in a process of its own, which is sampled."""
    with tempfile.TemporaryDirectory() as folder:
        process = multiprocessing.get_context("spawn").Process(
            target=train_long, args=(Path(folder), epochs)
        )
        process.start()
        rows = sampled(process, Path(folder))
    write_figures(file, rows)
    steps = epochs * EPOCH_STEPS
    print(
        f"{steps:,} steps, {steps // BETWEEN_CHECKPOINTS:,} checkpoints, "
        f"{rows[-1]['seconds']:,.0f} s"
    )
    for name in ("memory, MB", "open files", "disk, MB"):
        print(
            f"{name:<12}",
            *(f"{part}: {value:,.1f}" for part, value in quarters(rows, name).items()),
            sep="   ",
        )
    if picture:
        draw(rows, picture)
        print(f"drawn: {picture}")


def train_long(folder: Path, epochs: int) -> None:
    """The whole training, in a folder of its own."""
    from bench.training.stage_run import train_here  # noqa: PLC0415 (in the training's process only)

    os.chdir(folder)
    train_here(MODEL, steps=EPOCH_STEPS, epochs=epochs, every_steps=BETWEEN_CHECKPOINTS)


def sampled(process: BaseProcess, folder: Path) -> list[Row]:
    """A row every half second from the first checkpoint to the end of the process."""
    assert process.pid is not None
    watched = psutil.Process(process.pid)
    began = time.monotonic()
    rows = list[Row]()
    while process.is_alive():
        time.sleep(SECONDS_BETWEEN_SAMPLES)
        try:
            row = {
                "seconds": time.monotonic() - began,
                "memory, MB": watched.memory_info().rss / 1e6,
                "open files": float(watched.num_fds()),
                "disk, MB": disk_bytes(folder / ".resume") / 1e6,
            }
        except psutil.Error:
            break
        if row["disk, MB"]:
            rows.append(row)
    process.join()
    return rows


def disk_bytes(folder: Path) -> int:
    """The size of all files; one that is renamed or removed meanwhile counts as nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            total += path.stat().st_size if path.exists() else 0
    return total


def quarters(rows: list[Row], name: str) -> dict[str, float]:
    """The medians of the second and the last quarter, and the most."""
    values = [row[name] for row in rows]
    each = len(values) // 4
    return {
        "second quarter": float(np.median(values[each : 2 * each])),
        "last quarter": float(np.median(values[-each:])),
        "most": max(values),
    }


def draw(rows: list[Row], path: Path) -> None:
    """Three lines over time, one below the other."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 (takes a second to load)

    names = [name for name in rows[0] if name != "seconds"]
    figure, axes = plt.subplots(len(names), sharex=True, figsize=(8, 5))
    seconds: list[Any] = [row["seconds"] for row in rows]
    for axis, name in zip(axes, names, strict=True):
        axis.plot(seconds, [row[name] for row in rows], color="#1f6f8b", linewidth=1)
        axis.set_ylim(bottom=0)
        axis.set_title(name, loc="left", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(path, facecolor="white")
    plt.close(figure)


if __name__ == "__main__":
    main()
