"""Checks of what the system lets a program do. They come first, and import nothing that takes much
memory: below these limits the other checks could not run."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenmill.doctor.environment import Finding, problem
from tokenmill.process import narrow_address_space


def check_limits(root: Path) -> Iterator[Finding]:
    """Check the limits under which a run in the folder `root` would work; nothing is said of limits
    that are wide enough."""
    if narrow := narrow_address_space():
        yield problem("limits", f"{narrow} (nothing else was checked)", "ulimit -v unlimited")
    if sys.flags.safe_path:
        yield problem(
            "limits",
            "PYTHONSAFEPATH is set: `python -m stages` does not find the stages",
            "unset PYTHONSAFEPATH",
        )
    if not is_writable(root):
        yield problem(
            "folder",
            f"{root.resolve()} cannot be written (read-only, or another user's); cache, pipeline "
            "and disk were not checked",
            "take a copy of your own: git clone",
        )


def is_writable(root: Path) -> bool:
    """Whether this user may write in a folder, on a file system that can be written."""
    return os.access(root, os.W_OK | os.X_OK)
