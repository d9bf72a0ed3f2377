"""Ask the package index whether every pin has a wheel for every Python and system that the project promises.

`python -m tests.wheels` prints a line for each; `python -m tests.wheels 3.14 macos` for one. It needs the network and
uv (`pip install uv`), reads metadata only and installs nothing.
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable

from tests.imports import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

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


def problem(python: str, system: str) -> str | None:
    """Why the pins cannot be installed there with every extra, or None."""
    command = ["uv", "pip", "compile", "--quiet", "--no-header", "--python-version", python]
    command += ["--python-platform", SYSTEMS[system], "--all-extras", "--constraints", str(ROOT / "constraints.txt")]
    command += ["--only-binary", ":all:", *itertools.chain(*(("--no-binary", name) for name in SOURCE_ONLY))]
    done = subprocess.run(
        [*command, str(ROOT / "pyproject.toml")],
        env=os.environ | {"MACOSX_DEPLOYMENT_TARGET": OLDEST_MACOS},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip() or f"uv ended with {done.returncode}" if done.returncode else None


def main(chosen: Iterable[str]) -> int:
    """Print a line for each Python and system, all or the chosen ones; 1 if a wheel is missing."""
    if not shutil.which("uv"):
        print("error: this needs uv; `pip install uv` brings it.", file=sys.stderr)
        return 1
    wanted, missing = set(chosen), 0
    for python, system in itertools.product(pythons(), SYSTEMS):
        if wanted <= {python, system}:
            reason = problem(python, system)
            missing += reason is not None
            print(f"{python}  {system:<9}  {reason or 'every pin has a wheel'}", flush=True)
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
