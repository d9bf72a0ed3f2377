"""Ask the package index whether every pin has a wheel for every Python and system that the project
promises.

`python -m tests.wheels` prints a line for each, with the pinned PyTorch and the oldest and newest
supported ones; `python -m tests.wheels 3.14 macos 2.11.0` for one. It needs the network and uv
(`pip install uv`), reads metadata only and installs nothing.
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.imports import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")

SYSTEMS = {
    "linux": "x86_64-manylinux_2_28",
    "linux-arm": "aarch64-manylinux_2_28",
    "macos": "aarch64-apple-darwin",
}
"""What uv calls the systems of the README."""

OLDEST_MACOS = "14.0"
"""PyTorch's wheels ask for it."""

SOURCE_ONLY = ("antlr4-python3-runtime",)
"""Pure Python without a wheel; pip builds it anywhere (DVC's Hydra needs it)."""


def pythons() -> list[str]:
    """The versions that `requires-python` promises, as `3.11`."""
    bounds = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"])
    assert bounds, "from one version to before another"
    return [f"3.{minor}" for minor in range(int(bounds[1]), int(bounds[2]))]


def pins() -> dict[str, str]:
    """The version of every package in constraints.txt."""
    return {
        canonicalize_name(name): version
        for name, version in re.findall(r"(?m)^([\w.-]+)==(\S+)", CONSTRAINTS)
    }


def oldest_torch() -> str:
    """The lowest PyTorch that pyproject.toml allows, as `2.11.0`."""
    return _bound_of_torch(">=")


def newest_torch() -> str:
    """The highest PyTorch that pyproject.toml allows, whatever its last number, as `2.15.*`."""
    major, minor = map(int, _bound_of_torch("<").split("."))
    return f"{major}.{minor - 1}.*"


def _bound_of_torch(operator: str) -> str:
    wanted = {each.name: each.specifier for each in map(Requirement, PROJECT["dependencies"])}
    (bound,) = (each.version for each in wanted["torch"] if each.operator == operator)
    return bound


def problem(python: str, system: str, torch: str) -> str | None:
    """Why the pins, with this PyTorch, cannot be installed there with every extra, or None."""
    command = ["uv", "pip", "compile", "--quiet", "--no-header", "--python-version", python]
    command += ["--python-platform", SYSTEMS[system], "--all-extras"]
    command += [
        "--only-binary",
        ":all:",
        *itertools.chain(*(("--no-binary", name) for name in SOURCE_ONLY)),
    ]
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text(
            re.sub(r"(?m)^torch==.*", f"torch=={torch}", CONSTRAINTS), encoding="utf-8"
        )
        done = subprocess.run(
            [*command, "--constraints", str(constraints), str(ROOT / "pyproject.toml")],
            env=os.environ | {"MACOSX_DEPLOYMENT_TARGET": OLDEST_MACOS},
            capture_output=True,
            text=True,
            check=False,
        )
    return done.stderr.strip() or f"uv ended with {done.returncode}" if done.returncode else None


def main(chosen: Iterable[str]) -> int:
    """Print a line for each Python, system and PyTorch, all or the chosen ones; 1 if a wheel is
    missing."""
    if not shutil.which("uv"):
        print("error: this needs uv; `pip install uv` brings it.", file=sys.stderr)
        return 1
    torches = (oldest_torch(), pins()["torch"], newest_torch())
    wanted = set(chosen)
    missing = 0
    places = [
        place for place in itertools.product(pythons(), SYSTEMS, torches) if wanted <= set(place)
    ]
    with ThreadPoolExecutor(4) as threads:  # uv mostly waits for the index
        reasons = threads.map(problem, *zip(*places, strict=True)) if places else iter(())
        for (python, system, torch), reason in zip(places, reasons, strict=True):
            missing += reason is not None
            print(
                f"{python}  {system:<9}  torch {torch}  {reason or 'every pin has a wheel'}",
                flush=True,
            )
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
