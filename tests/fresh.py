"""Python started anew, and what it imported: as the interpreter itself tells it, whatever the
program does."""

import os
import subprocess
import sys
from pathlib import Path

from tests.imports import ROOT

COMPILER = frozenset({"torch._dynamo", "torch._inductor", "sympy"})
"""PyTorch's compiler and its algebra: two seconds that nobody needs who does not compile."""


def imported_by(*arguments: str, cwd: Path = ROOT) -> set[str]:
    """The modules that `python ARGUMENTS` imports; it must end without an error."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = (
        line.split("|") for line in done.stderr.splitlines() if line.startswith("import time:")
    )
    return {line[-1].strip() for line in lines}
