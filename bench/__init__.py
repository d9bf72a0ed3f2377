"""Benchmarks, which run from a checkout: `python -m bench.NAME`."""

import importlib.util
import sys
from pathlib import Path

# On a machine where nothing of the project is installed
if importlib.util.find_spec("tokenmill") is None:
    sys.path.append(str(Path(__file__).resolve().parent.parent / "src"))
