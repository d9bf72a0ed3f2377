"""One trial: a stage or a command in a forked process, and how it ended.

The parent has imported everything, so that a trial takes a tenth of a second instead of three. The
child is a process of its own: it gets a folder, limits and arguments, and runs what `python -m
stages NAME` or `tokenmill …` would run.
"""

import atexit
import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests import forks

Ending = Literal["done", "refused", "traceback", "hang", "memory", "signal"]

SECONDS = 60.0
"""A trial that takes longer hangs: quiet ones take less than three."""

GROWTH = 1 << 30
"""Bytes by which a trial's memory may grow beyond what the imports took."""

LIMIT = 4 << 30
"""Bytes of address space that a trial gets, so that no fault takes the machine down."""


@dataclass(frozen=True)
class Outcome:
    """How a trial ended."""

    ending: Ending
    said: str
    """Its output and its errors."""
    seconds: float


class Trial:
    """A running trial."""

    def __init__(self, root: Path, command: Sequence[str], *, log: Path | None = None):
        """Start `command` in `root`; what it says goes to `log`."""
        self._began = time.monotonic()
        self._log = log or root.parent / "said"
        self._log.write_bytes(b"")
        # Until the trial does what a program does
        handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
        self.pid = os.fork()
        if not self.pid:
            _become(root, command, self._log)
        signal.signal(signal.SIGINT, handler)

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to it and to what it started; it may have ended already."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self, seconds: float = SECONDS) -> Outcome:
        """Wait for its end, or end it where it hangs."""
        hangs = False
        while True:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - self._began > seconds and not hangs:
                self.kill(signal.SIGKILL)
                hangs = True
            time.sleep(0.002)
        said = self._log.read_text("utf-8", "replace")
        grown = usage.ru_maxrss * 1024 - resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        ending = "hang" if hangs else ending_of(os.waitstatus_to_exitcode(status), said, grown)
        return Outcome(ending, said, time.monotonic() - self._began)


def run(root: Path, command: Sequence[str], *, log: Path | None = None) -> Outcome:
    """Start a trial and wait for it."""
    return Trial(root, command, log=log).wait()


def ending_of(code: int, said: str, grown: int = 0) -> Ending:
    """How a program ended, by its exit code, its words and the bytes by which it grew."""
    if grown > GROWTH:
        return "memory"
    if "Traceback (most recent call last)" in said or "panicked at" in said:
        return "traceback"
    if code < 0:
        return "signal"
    return "done" if code == 0 else "refused"


def _become(root: Path, command: Sequence[str], log: Path) -> None:
    """Be the trial: the child's only function, from which it does not return."""

    def work() -> None:
        os.setsid()
        os.chdir(root)
        for stream in (1, 2):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + LIMIT, size + LIMIT))
        _work(command)

    atexit._clear()  # what the parent does at its end
    forks.become(work)


def _work(command: Sequence[str]) -> None:
    """What the command line would do."""
    import torch  # noqa: PLC0415 (the parent has it already)

    torch.set_num_threads(1)
    program, *arguments = command
    if program == "tokenmill":
        from tokenmill.cli.main import main  # noqa: PLC0415

        sys.argv = ["tokenmill", *arguments]
        main(arguments)
    else:
        from importlib import import_module  # noqa: PLC0415

        from tokenmill.schema import check_all  # noqa: PLC0415
        from tokenmill.stage import run_stage  # noqa: PLC0415

        def checked() -> None:
            check_all()
            import_module(f"stages.{program}").main()

        sys.argv = [f"stages/{program}"]
        sys.orig_argv = [sys.executable, "-m", "stages", program]  # which several processes repeat
        run_stage(checked)


def import_everything() -> None:
    """Import what trials use, once."""
    import importlib  # noqa: PLC0415

    import dvc.repo  # noqa: F401, PLC0415

    from tests.imports import SOURCE  # noqa: PLC0415

    for path in sorted(SOURCE.rglob("*.py")):
        if path.stem not in ("__main__", "__init__"):
            with contextlib.suppress(ModuleNotFoundError):  # of an extra that is not installed
                importlib.import_module(
                    "tokenmill."
                    + path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".")
                )
    for path in sorted((SOURCE.parents[1] / "stages").glob("*.py")):
        if path.stem not in ("__main__", "__init__"):
            importlib.import_module(f"stages.{path.stem}")
    forks.ready()
