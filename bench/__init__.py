"""Benchmarks, which run from a checkout: `python -m bench.NAME`."""

import importlib.util
import sys
from pathlib import Path

if (
    importlib.util.find_spec("tokenmill") is None
):  # on a machine where nothing of the project is installed
    sys.path.append(str(Path(__file__).resolve().parent.parent / "src"))
