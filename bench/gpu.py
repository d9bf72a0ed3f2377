"""Every figure that needs a GPU, part by part: `python3 -m bench.gpu --nanogpt CHECKOUT --text
FILE`.

    python3 -m bench.gpu --list                   # the parts, with their limits
    python3 -m bench.gpu --part correctness       # one of them; others can follow in other calls

`correctness` tells whether training is right here at all. Then come steps beside nanoGPT's at both
shapes of GPT-2 124M, the ladder at full size with its utilisation, steps that are bound by
launches, tokens to nanoGPT's loss on the text (give a real one of tens of MB; nanoGPT's other
published configuration runs to its end), and writing. Each part is a process of its own that ends
within its limit, all of them within 26 minutes, and the rows that matter most come first. `--part
options` measures what TokenMill does not do yet (bench/training/options.py). Each row is written
when it is there, so that what is cut off is kept, and a part that fails costs none of the others.
At the end stands a table of targets, met or missed; it and all figures lie in the folder
`--output`.

It runs from a checkout, without a network, where torch, numpy and safetensors are installed beside
pydantic, ruamel.yaml, filelock, fsspec, rich and psutil. Only pydantic-core and psutil of these are
compiled.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.program import command_line, environment, verdict, write_figures
from bench.training.peers import GPT2_SHAPES, TIMES_FEWER
from bench.training.variants import OURS
from tokenmill.core.errors import UserError
from tokenmill.stage import report_errors

Row = dict[str, Any]

STEPS = {f"steps-{batch}x{context}": (batch, context) for batch, context in GPT2_SHAPES}

PARTS = {
    "correctness": (
        130,
        "steps as on the CPU, a NaN, out of memory, a checkpoint beside steps, resume, compilation",
    ),
    "loss": (270, "tokens and seconds to nanoGPT's loss"),
    "steps-64x512": (300, "GPT-2 124M, 64 x 512 tokens a step, beside nanoGPT"),
    "ladder": (300, "the climb from the first script to TokenMill, and its utilisation"),
    "parallel": (120, "GPT-2 124M on all GPUs by DDP and by FSDP, beside one of them"),
    "steps-16x1024": (180, "GPT-2 124M, 16 x 1024 tokens a step, beside nanoGPT"),
    "launches": (170, "steps of small models: one by one, compiled, recorded as one graph"),
    "generation": (80, "tokens a second of writing, beside transformers where it is installed"),
}
"""The most seconds of each part and what it measures, in the order in which they run."""

ASKED_FOR = {
    "options": (240, "GPT-2 124M with what is off until a GPU has measured it, row by row"),
}
"""The same of parts that run only where `--part` names them."""

ALL_PARTS = PARTS | ASKED_FOR


@dataclass(frozen=True)
class Part:
    """What one of the benchmarks gave."""

    rows: list[Row] = field(default_factory=list)
    failed: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Target:
    """A figure that the project set itself."""

    name: str
    at_least: float
    value: float | None
    why_not: str = ""
    """Where there is no value."""

    @property
    def verdict(self) -> str:
        """Met, missed, or why neither."""
        if self.value is None:
            return f"not measured: {self.why_not}"
        return verdict(self.value >= self.at_least)


def main() -> None:
    """Run all parts, print the targets."""
    parser = command_line(
        __doc__, tiny="a few steps of next to nothing, on a CPU too", figures=False
    )
    parser.add_argument(
        "--part",
        nargs="+",
        choices=ALL_PARTS,
        default=list(PARTS),
        metavar="NAME",
        help="only these",
    )
    parser.add_argument("--list", action="store_true", help="name the parts, and end")
    parser.add_argument(
        "--nanogpt", type=Path, help="a checkout of nanoGPT; without it TokenMill runs alone"
    )
    parser.add_argument("--text", type=Path, help="a text file; default: the built-in sample")
    parser.add_argument(
        "--peak-tflops", type=float, help="the device's peak in bfloat16, if it is not known"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("bench-gpu"), help="a folder for figures"
    )
    options = parser.parse_args()
    if options.list:
        for name, (limit, what) in ALL_PARTS.items():
            print(f"{name:16}at most {limit} s: {what}")
    else:
        report_errors(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """The parts asked for; those of earlier calls with the same folder stay.

    Raises:
        UserError: there is no CUDA device.
    """
    if not torch.cuda.is_available() and not options.tiny:
        raise UserError(
            "these benchmarks need a CUDA device, and torch sees none here; bench.training.peers "
            "runs on a CPU too."
        )
    options.output.mkdir(parents=True, exist_ok=True)
    figures = options.output / "figures.json"
    known = json.loads(figures.read_text("utf-8"))["parts"] if figures.exists() else {}
    parts = {name: Part(**part) for name, part in known.items()}
    for name in options.part:
        file = options.output / f"{name}.json"
        command = [sys.executable, "-m", *arguments_of(name, options), "--json", str(file)]
        print(f"\n{name}: {' '.join(command[1:])}", flush=True)
        parts[name] = run_part(command, file, limit=ALL_PARTS[name][0])
        if parts[name].failed:
            print(f"{name}: {parts[name].failed}", flush=True)
        everything: Row = {
            "targets": [vars(target) | {"verdict": target.verdict} for target in targets_of(parts)]
        }
        everything |= {"device": _device(), "torch": torch.__version__}
        everything["parts"] = {name: vars(part) for name, part in parts.items()}
        write_figures(figures, everything)
    print(f"\non {_device()}, figures in {figures}")
    print_targets(targets_of(parts))


def arguments_of(part: str, options: argparse.Namespace) -> list[str]:
    """A part's module and arguments."""
    size = ["--tiny"] if options.tiny else ["--gpu"]
    tiny = ["--tiny"] if options.tiny else []
    if part in {"correctness", "launches", "parallel", "options"}:
        return [f"bench.training.{part}", *tiny]
    if part == "generation":
        return [
            "bench.generate",
            "--gpu",
            *(["--tiny", "--tokens", "4", "--rounds", "1"] if options.tiny else []),
        ]
    if part == "ladder":
        peak = ["--peak-tflops", str(options.peak_tflops)] if options.peak_tflops else []
        few = ["--only", *OURS] if options.tiny else []
        return ["bench.training.ladder", *tiny, *few, *peak]
    common = [*size, *(["--text", str(options.text)] if options.text else [])]
    common += ["--nanogpt", str(options.nanogpt)] if options.nanogpt else []
    if part == "loss":
        return ["bench.training.peers", *common, "--skip-steps"]
    shape = [] if options.tiny else ["--shape", *map(str, STEPS[part])]
    return ["bench.training.peers", *common, "--skip-loss", *shape]


def run_part(command: Sequence[str], file: Path, *, limit: float) -> Part:
    """Run a benchmark that writes its rows to `file`; end it, with all that it started, after
    `limit` seconds."""
    file.unlink(missing_ok=True)
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment(), start_new_session=True)
    failed = None
    try:
        if code := process.wait(limit):
            failed = f"exit code {code}, which the lines above explain"
    except subprocess.TimeoutExpired:
        failed = f"not done in {limit:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    rows = json.loads(file.read_text("utf-8")) if file.exists() else []
    return Part(rows, failed, round(time.perf_counter() - began, 1))


def targets_of(parts: dict[str, Part]) -> list[Target]:
    """What the project wants to reach on a GPU, and what it did."""
    ladder = parts.get("ladder", Part())
    loss = parts.get("loss", Part())
    targets = [
        _target(
            "correctness: share of checks passed", 1, parts.get("correctness", Part()), _passed
        ),
        _target(
            "ladder: default over first variant",
            16,
            ladder,
            _variant("TokenMill", "times the first"),
        ),
        _target(
            "utilisation, GPT-2 134M, 64 x 512",
            0.5,
            ladder,
            _variant("TokenMill, GPT-2", "utilisation"),
        ),
    ]
    for batch, context in GPT2_SHAPES:
        steps = parts.get(f"steps-{batch}x{context}", Part())
        targets.append(
            _target(f"tokens/s over nanoGPT's, {batch} x {context}", 1.3, steps, _over_nanogpt)
        )
    return [
        *targets,
        _target("tokens to nanoGPT's loss, times fewer", TIMES_FEWER, loss, _times_fewer),
    ]


def _target(name: str, at_least: float, part: Part, value: Callable[[list[Row]], float]) -> Target:
    try:
        return Target(name, at_least, value(part.rows))
    except LookupError as error:
        return Target(
            name, at_least, None, part.failed or (str(error.args[0]) if part.rows else "not run")
        )


def _passed(rows: list[Row]) -> float:
    if not rows:
        raise LookupError("not run")
    return sum(row["passed"] for row in rows) / len(rows)


def _variant(name: str, figure: str) -> Callable[[list[Row]], float]:
    def value(rows: list[Row]) -> float:
        row = next((row for row in rows if row["variant"] == name), None)
        if row is None or "left out" in row:
            raise LookupError(row["left out"] if row else f"there is no variant {name}")
        return row[figure]

    return value


def _over_nanogpt(rows: list[Row]) -> float:
    """The equal model's row stands behind nanoGPT's."""
    if not rows[0]["steps"].startswith("nanoGPT"):
        raise LookupError("nanoGPT did not run (--nanogpt)")
    for row in rows[:2]:
        if "left out" in row:
            raise LookupError(f"{row['steps']}: {row['left out']}")
    return rows[1]["times the first"]


def _times_fewer(rows: list[Row]) -> float:
    if len(rows) < 2:
        raise LookupError("nanoGPT did not run (--nanogpt)")
    return rows[1]["times fewer tokens"] if rows[1]["reached"] else 0.0


def print_targets(targets: list[Target]) -> None:
    """One line per target."""
    width = max(len(target.name) for target in targets)
    for target in targets:
        value = "" if target.value is None else f"{target.value:.2f}"
        print(
            f"{target.name:<{width}}  {value:>6}  at least {target.at_least:<4g}  {target.verdict}"
        )


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"


if __name__ == "__main__":
    main()
