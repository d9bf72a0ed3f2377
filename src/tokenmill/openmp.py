"""How PyTorch's threads wait for each other on a CPU; to be said before PyTorch is loaded."""

import os

SPINS = 5000
"""Turns of an empty loop after which a waiting thread sleeps; docs/decisions.md has what they cost and save."""


def sleep_soon() -> None:
    """Let OpenMP's waiting threads sleep soon, unless the user has said how long they shall spin.

    By default they spin sixty times as long, which beside other load slows training down.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))
