"""How a stage runs: a function of the work tree it stands in; what a user can cause ends in a sentence."""

import atexit
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tokenmill.core.errors import UserError


def run(main: Callable[[], None]) -> None:
    """Run a stage's `main`, after a look at the whole of params.yaml: what cannot end well should not begin."""
    from tokenmill.schema import check_all  # noqa: PLC0415 (commands that report errors should not wait for it)

    def checked() -> None:
        check_all()
        main()

    report_errors(checked)


def report_errors(work: Callable[[], None]) -> None:
    """Do `work`; what a user can cause is one sentence on stderr and exit code 1.

    130 is the exit code of an interruption, 141 that of output that nobody reads any more.
    """
    atexit.register(gc.freeze)  # or Python would look for garbage in all of PyTorch before it ends: half a second
    try:
        work()
        sys.stdout.flush()
    except UserError as error:
        sys.exit(f"error: {error}")
    except BrokenPipeError:  # whoever read the output, as `head` does, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python still writes at its end
        sys.exit(141)
    except OSError as error:
        sys.exit(f"error: {describe(error)}")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def describe(error: OSError) -> str:
    """An operating system's error as a sentence with the file in it."""
    where = f"{Path(str(error.filename))}: " if error.filename else ""
    return f"{where}{error.strerror or error}"
