"""How PyTorch's threads wait for each other on a CPU; to be said before PyTorch is loaded."""

import os

SPINS = 5000
"""Turns of an empty loop, a tenth of a millisecond or two, after which a waiting thread sleeps (docs/decisions.md)."""


def sleep_soon() -> None:
    """Let OpenMP's waiting threads sleep soon, unless the user has said how long they shall spin.

    By default they spin a hundred times as long, which beside any other load slows training down several times.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))
