"""`tokenmill doctor`: a line for each check, and what to type where something is wrong."""

from collections import Counter
from pathlib import Path
from typing import TextIO

from tokenmill.display.terminal import Colour, paint
from tokenmill.doctor.finding import Finding, Level
from tokenmill.doctor.run import run_checks

SIGNS: dict[Level, tuple[str, Colour]] = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}


def show(root: Path, out: TextIO) -> bool:
    """Print what is found of the project in the folder `root`, as it is found; give whether there is a problem."""
    counts: Counter[Level] = Counter()
    for finding in run_checks(root):
        print(line(finding, out), file=out, flush=True)
        counts[finding.level] += 1
    print(f"\n{_verdict(counts)}", file=out)
    return counts["problem"] > 0


def line(finding: Finding, out: TextIO) -> str:
    """One finding; its remedy on a line of its own."""
    sign, colour = SIGNS[finding.level]
    mark = paint(f"{sign} {finding.level:<8}", colour, out)
    text = finding.text.replace("\n", "\n" + " " * 22)
    fix = f"\n{'':22}{paint('→ ' + finding.fix, colour, out)}" if finding.fix else ""
    return f"{mark} {finding.name:<11}{text}{fix}"


def _verdict(counts: Counter[Level]) -> str:
    if not counts["problem"] + counts["warning"]:
        return "all is well: `dvc repro`"
    found = [f"{counts[level]} {level}{'s' if counts[level] > 1 else ''}" for level in ("problem", "warning")]
    some = ", ".join(text for text in found if not text.startswith("0"))
    return some if counts["problem"] else f"{some}, nothing that stops a run"
