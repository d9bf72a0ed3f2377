"""Remove Python's byte code that a full disk or a kill cut off, and start again.

Python does not look whether its own files are whole: it ends in an EOFError of `marshal`.
"""

import contextlib
import marshal
import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

HEADER_BYTES = 16
"""The bytes before the code in a .pyc (PEP 552)."""

RESTARTED = "TOKENMILL_RESTARTED"
"""The environment variable of a program that was started again, which does so only once."""


def remove_cut(folders: Iterable[Path]) -> list[Path]:
    """Remove the .pyc files below these folders that cannot be read, and return their paths."""
    removed = []
    for path in (path for folder in folders for path in folder.rglob("*.pyc")):
        with contextlib.suppress(OSError):
            try:
                marshal.loads(path.read_bytes()[HEADER_BYTES:])  # noqa: S302 (Python's own)
            except (EOFError, ValueError, TypeError):
                path.unlink()
                removed.append(path)
    return removed


def start_again() -> NoReturn:
    """Remove byte code that was cut off, of the project and of its packages, and become this
    program anew."""
    root = Path(__file__).parents[2]
    folders = (root / "src", root / "stages", Path(sysconfig.get_path("purelib")))
    if os.environ.pop(RESTARTED, None) or not remove_cut(folders):
        sys.exit(
            "error: Python's byte code is cut off, as by a full disk; remove it: find . -name "
            "'*.pyc' -delete"
        )
    sys.stdout.flush()
    os.execve(  # noqa: S606 (no shell)
        sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {RESTARTED: "1"}
    )
