"""A benchmark as a program: the checkout that it runs, its command line, its figures."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.core.files import write_text

ROOT = Path(__file__).resolve().parent.parent


def environment(code: Path = ROOT) -> dict[str, str]:
    """This process's, in which Python finds the checkout `code`, then what PYTHONPATH has now."""
    paths = [str(code / "src"), str(code), os.environ.get("PYTHONPATH")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def command_line(
    about: str | None, *, tiny: str | None = None, figures: bool = True
) -> argparse.ArgumentParser:
    """The parser of a benchmark's command line.

    Args:
        about: the docstring of its module.
        tiny: what `--tiny` makes of it; None if there is no such option.
        figures: whether `--json` writes its figures to a file.
    """
    module = sys.modules["__main__"].__spec__
    parser = argparse.ArgumentParser(
        # As Python 3.14 writes it
        prog=f"python -m {module.name.removesuffix('.__main__')}" if module else None,
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if tiny:
        parser.add_argument("--tiny", action="store_true", help=f"{tiny}: only to see that it runs")
    if figures:
        parser.add_argument(
            "--json", type=Path, metavar="FILE", help="write the figures to this file, too"
        )
    return parser


def write_figures(path: Path | None, figures: Any) -> None:
    """Write figures as JSON; without a path nothing is written."""
    if path:
        write_text(path, json.dumps(figures, indent=2, ensure_ascii=False) + "\n")


class RowFile:
    """Rows of figures, and a file that has all of them after each; without a path none is
    written."""

    def __init__(self, path: Path | None):
        self._path = path
        self.rows: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any]) -> None:
        """Write a row behind the others."""
        self.replace([*self.rows, row])

    def show(self, row: dict[str, Any]) -> None:
        """Print a row and write it behind the others."""
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
        self.add(row)

    def replace(self, rows: list[dict[str, Any]]) -> None:
        """Write these rows instead of the others."""
        self.rows = rows
        write_figures(self._path, rows)


def exponents(
    rows: list[dict[str, Any]], of: Sequence[str], *, size: str, took: str
) -> dict[tuple[Any, ...], float]:
    """The power of `size` with which `took` grows, as the slope of a line through the logarithms,
    for all rows that have the same in the columns `of`. Rows without `took` do not count, nor does
    a single one."""
    points: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for row in rows:
        if took in row:
            curve = points.setdefault(tuple(row[name] for name in of), [])
            curve.append((row[size], row[took]))
    found = {}
    for key, curve in points.items():
        if len(curve) > 1:
            x, y = np.log(curve).T
            found[key] = float(np.polyfit(x, y, 1)[0])
    return found


def verdict(met: bool) -> str:
    """Whether a target is met, in a word."""
    return "met" if met else "MISSED"
