"""In which processes a training runs: in this one or in several, and in fresh ones where memory ran out."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from tokenmill.core.errors import UserError
from tokenmill.model.device import choose_device
from tokenmill.training.interrupt import BEGAN, Interrupt, session_began
from tokenmill.training.memory import StartAgain
from tokenmill.training.params import RuntimeParams

AGAIN = 75
"""Exit code of a process that wants all of its group to start again (EX_TEMPFAIL)."""


GRACE = 5.0
"""Seconds that the others have to end by themselves once one process has failed."""


def launch(work: Callable[[], None], *, runtime: RuntimeParams) -> None:
    """Do `work` in this process, or have `runtime.processes` of them run this program's command.

    Where memory ran out it is done again in fresh processes; one that is alone is replaced and keeps its number, so
    whoever waits for it goes on waiting. A process that torchrun started (RANK is set) is one of several already.

    Raises:
        UserError: not so many devices, or a process of the group was killed.
    """
    one_of_several, began = "RANK" in os.environ, str(session_began())
    if not one_of_several and (count := _processes(runtime)) > 1:
        _together(count, began)
        return
    try:
        work()
    except StartAgain as again:
        if os.name == "nt":  # there a replaced process counts as ended
            raise UserError(f"{again}; type `dvc repro` to start it.") from None
        print(again, file=sys.stderr, flush=True)
        if one_of_several:
            os._exit(AGAIN)  # the others are in the middle of a step: an orderly end might wait for them in vain
        os.environ[BEGAN] = began
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 (the very command that runs now)


def _processes(runtime: RuntimeParams) -> int:
    """How many processes the parameters ask for, and this machine has devices for."""
    device = choose_device(runtime.device).type
    there = {"cuda": torch.cuda.device_count(), "mps": 1}.get(device)
    if runtime.processes == "auto":
        return there or 1
    if there is not None and runtime.processes > there:
        raise UserError(
            f"runtime.processes ({runtime.processes}) needs a device for each, and there are {there} ({device}) here; "
            "set it to auto."
        )
    return runtime.processes


def _together(count: int, began: str) -> None:
    """Run so many processes of this command as one group; all again as long as one of them asks for it."""
    while AGAIN in (codes := _once(count, began)):
        pass
    killed = next((-code for code in codes if code < 0), None)
    if killed and not any(code > 0 for code in codes):
        raise UserError(
            f"a process of this training was killed by {signal.Signals(killed).name}; `dvc repro` goes on from the "
            "last checkpoint."
        )
    if any(codes):
        sys.exit(next(code for code in codes if code > 0))  # it has said why


def _once(count: int, began: str) -> list[int]:
    """Exit codes of a group's processes that ended by themselves; none is left behind."""
    # Where they find each other.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # pyright: ignore[reportPrivateImportUsage]
    shared = {
        BEGAN: began,
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // count)),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            start_new_session=True,  # a Ctrl-C reaches them once, from here
        )
        for rank in range(count)
    ]
    try:
        with Interrupt(max_minutes=None) as interrupt:
            return _wait(processes, interrupt)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _wait(processes: list["subprocess.Popen[bytes]"], interrupt: Interrupt) -> list[int]:
    """Wait for all; pass a signal on to them, and end the others once one has failed."""
    told, failed_at = False, None
    while any(process.poll() is None for process in processes):
        if interrupt.reason and not told:
            told = True
            for process in processes:
                process.send_signal(interrupt.signal or signal.SIGTERM)
        if any(process.returncode for process in processes) and not told:
            failed_at = failed_at or time.monotonic()
            if time.monotonic() - failed_at > GRACE:
                break
        time.sleep(0.02)
    codes = [process.poll() for process in processes]
    return [code for code in codes if code is not None]
