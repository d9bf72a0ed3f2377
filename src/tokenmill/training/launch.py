"""In which process a training runs: in this one, and in a fresh one where memory ran out and stays taken."""

import os
import sys
from collections.abc import Callable

from tokenmill.errors import UserError
from tokenmill.training.micro_batch import StartAgain


def launch(work: Callable[[], None]) -> None:
    """Do `work`, in this process; if it asks to start again, do this program's command anew in its place.

    The process keeps its number, so whoever waits for it goes on waiting, and all its memory is given back.
    """
    try:
        work()
    except StartAgain as again:
        if os.name == "nt":  # there a replaced process counts as ended
            raise UserError(f"{again}; type `dvc repro` to start it.") from None
        print(again, file=sys.stderr, flush=True)
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 (the very command that runs now)
