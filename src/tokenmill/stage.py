"""Run a stage or a command: what a user can cause ends as one sentence with an exit code, not as a traceback."""

import atexit
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tokenmill.core.errors import UserError
from tokenmill.core.files import DISK_FULL
from tokenmill.core.units import message


def run(main: Callable[[], None]) -> None:
    """Run a stage's `main` after a check of the whole params.yaml, so that a mistake in it ends the first stage."""
    from tokenmill.schema import check_all  # noqa: PLC0415 (loads every section; commands do not need them)

    def checked() -> None:
        check_all()
        main()

    report_errors(checked)


def report_errors(work: Callable[[], None]) -> None:
    """Do `work`; end with one sentence on stderr and exit code 1 if a user caused an error.

    The exit code is 130 after Ctrl-C, and 141 when the reader of stdout, such as `head`, has closed it.
    """
    atexit.register(gc.freeze)  # else Python searches all of PyTorch for garbage before it ends: half a second
    try:
        work()
        sys.stdout.flush()
    except UserError as error:
        sys.exit(f"error: {message(str(error))}")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python still flushes at its end
        sys.exit(141)
    except EOFError as error:
        if "marshal" not in str(error):
            raise
        sys.exit("error: Python's byte code is cut off, as by a full disk; remove it: find . -name '*.pyc' -delete")
    except OSError as error:
        sys.exit(f"error: {message(describe(error))}")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def describe(error: OSError) -> str:
    """An operating system's error as a sentence with the file in it, and the way out of a full disk."""
    where = f"{Path(str(error.filename))}: " if error.filename else ""
    room = "; free space and type the same command again: nothing is half-written" if error.errno in DISK_FULL else ""
    return f"{where}{error.strerror or error}{room}"
