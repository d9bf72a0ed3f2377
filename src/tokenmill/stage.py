"""Run a stage or a command. An error of the user ends as a sentence with an exit code.

A stage ends when the DVC that started it ends, so that it never writes at the same time as the same
stage of the next `dvc repro`.
"""

import atexit
import contextlib
import errno
import gc
import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenmill import byte_code, git
from tokenmill.core.errors import UserError, missing_package
from tokenmill.core.files import DISK_FULL
from tokenmill.process import end_with_dvc
from tokenmill.words.units import message

WAYS_OUT = DISK_FULL | {
    errno.ENOLCK: "mount its file system with locks, or move the project elsewhere,",
    errno.EROFS: "mount its file system for writing, or move the project elsewhere,",
}
"""The way out of errors that a change of the file system mends."""

OUT_OF_MEMORY = "out of memory; free some and type the same command again: nothing is half-written."


def run_stage(main: Callable[[], None]) -> None:
    """Run a stage's `main` as a child of DVC."""
    _outlive_readers()
    end_with_dvc()
    report_errors(main)


def report_errors(work: Callable[[], None]) -> None:
    """Do `work`. An error that a user caused ends in one sentence on stderr and exit code 1.

    The exit code is 130 after Ctrl-C, and 141 when the reader of stdout, such as `head`, has closed
    it.
    """
    _take_ctrl_c()
    _open_closed_streams()
    _replace_unknown_characters()
    _leave_other_repositories()
    atexit.register(_spare_garbage)
    try:
        _check_threads()
        work()
        sys.stdout.flush()
    except BrokenPipeError:
        # For what Python flushes at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except EOFError as error:
        if "marshal" not in str(error):
            raise
        byte_code.start_again()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        said = _sentence(error)
        if said is None:
            raise
        sys.exit(f"error: {message(said)}")


def _spare_garbage() -> None:
    """Keep Python from searching all of PyTorch for garbage before it ends, which takes half a
    second.

    Triton (3.9) prints thirty lines about its objects that are left then, so where it is loaded,
    Python searches.
    """
    if "triton" in sys.modules:
        gc.unfreeze()
    else:
        gc.freeze()


def _sentence(error: Exception) -> str | None:
    """What a user reads of an error; None if no user caused it."""
    said = None
    match error:
        case UserError():
            said = str(error)
        case ModuleNotFoundError():
            said = missing_package(error)
        case UnicodeEncodeError():
            # A codec may have another name for itself, as charmap
            encoding = sys.getfilesystemencoding()
            if encoding != "utf-8" and not error.encoding.startswith("utf"):
                said = (
                    f"{error.object}: names of files are {encoding} here; `export PYTHONUTF8=1` "
                    "and type the same command again."
                )
        case OSError():
            said = describe(error)
        case MemoryError():
            said = OUT_OF_MEMORY
        case _:
            pass
    return said


def _take_ctrl_c() -> None:
    """Let Ctrl-C raise an exception again, if stages/__main__.py let it end the process while it
    imported."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _open_closed_streams() -> None:
    """Let nothing else take the place of a stream that was closed at the start, as by `>&-`."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                nowhere = os.open(os.devnull, os.O_RDWR)
                if nowhere != descriptor:
                    os.dup2(nowhere, descriptor)
                    os.close(nowhere)
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))


class _Unread(io.FileIO):
    """A stream whose reader may go: a terminal that is closed, a `tee` that ended. What is written
    after that is lost."""

    def write(self, data: Any) -> int:
        """Write, and count as written what nobody reads."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EPIPE):
                raise
            return memoryview(data).nbytes


def _outlive_readers() -> None:
    """Let no stage end, and no training lose steps, because nobody reads what it prints."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # (a closed one is no such stream, and a console of Windows is no file)
        if isinstance(stream, io.TextIOWrapper) and os.name != "nt":
            raw = io.BufferedWriter(_Unread(stream.fileno(), "w", closefd=False))
            # (one that PYTHONUNBUFFERED leaves without a buffer writes through)
            by_line = stream.line_buffering or stream.write_through
            options = {"encoding": stream.encoding, "errors": stream.errors}
            setattr(sys, name, io.TextIOWrapper(raw, line_buffering=by_line, **options))


def _replace_unknown_characters() -> None:
    """Print `?` for characters that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # (a notebook's is not)
            stream.reconfigure(errors="replace")


def _leave_other_repositories() -> None:
    """Forget what leads git, or DVC in this process, to another repository."""
    for name in os.environ.keys() - git.own_environment().keys():
        del os.environ[name]


def _check_threads() -> None:
    """Refuse a number of threads on which polars ends the program.

    Raises:
        UserError: it is set, and no whole number from 1 on.
    """
    value = os.environ.get("POLARS_MAX_THREADS", "1")
    if not value.isdecimal() or int(value) < 1:
        raise UserError(f"POLARS_MAX_THREADS ({value}) must be 1 or more; unset it.")


def describe(error: OSError) -> str:
    """An operating system's error as a sentence with its file, and with the way out if there is one
    in WAYS_OUT."""
    where = f"{Path(str(error.filename))}: " if error.filename else ""
    way_out = (
        f"; {WAYS_OUT[error.errno]} and type the same command again: nothing is half-written"
        if error.errno in WAYS_OUT
        else ""
    )
    return f"{where}{error.strerror or error}{way_out}"
