"""The pipeline's stages, one script each, run by DVC as `python -m stages.NAME` in the repository's root.

The code beside the stage is the code that runs: a queued experiment works in a copy of the repository,
and must not import the library of the main one even when that is installed in the environment.
"""

import importlib.util
import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036  (a user's `python` may be any)
    sys.exit(f"error: TokenMill needs Python 3.11 or newer, not {sys.version.split()[0]} ({sys.executable}).")

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

_missing = [name for name in ("pydantic", "polars", "tokenizers") if importlib.util.find_spec(name) is None]
if _missing:
    sys.exit(
        f"error: {sys.executable} lacks {', '.join(_missing)}; activate the environment first: "
        ". .venv/bin/activate (`make repro` creates it)."
    )

from tokenmill.openmp import sleep_soon_beside_others  # noqa: E402 (only now can it be found)

sleep_soon_beside_others()
