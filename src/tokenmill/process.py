"""Prepare this process: what its allocators keep, how often it looks for garbage, and with whom it
ends.

All but the last is set before polars and PyTorch are loaded.
"""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil

from tokenmill.words.units import message, size

if sys.platform != "win32":
    import resource

NEW_OBJECTS = 10_000
"""New objects after which Python looks for garbage among them. Its own choice (3.11) is 700."""

LEAST_ADDRESS_SPACE = 3 << 29
"""Bytes of address space that DVC and PyTorch take together, before they have any data: with 1.0 GB
polars ended the process, 1.5 GB sufficed."""

LOOK_SECONDS = 0.5
"""Seconds between two looks at whether the processes above this one still run."""


def set_allocators() -> None:
    """Let allocators keep less memory that is free, unless their variables are already set.

    Call it before polars and PyTorch are loaded. polars' allocator, jemalloc, returns pages a
    second after they are freed instead of ten: texts of a megabyte each have so many sizes that few
    fit into what another one left. PyTorch's on a GPU grows its segments, where tensors of
    other sizes, as a smaller micro-batch or an epoch's last step brings them, would leave gaps.
    """
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:1000,muzzy_decay_ms:0")
    if sys.platform == "linux":
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")


def look_for_garbage_rarely() -> None:
    """Let Python look for garbage after more new objects.

    Nearly all objects of an import stay, and so do those that a command reads. Looking at them took
    a tenth to a quarter of a command's time.
    """
    gc.set_threshold(NEW_OBJECTS)


def narrow_address_space() -> str | None:
    """What the limit of this process's address space is and what a run takes, as a part of a
    sentence; None if the limit is wide enough, or if there is none."""
    if sys.platform == "win32":
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if not 0 <= most < LEAST_ADDRESS_SPACE:
        return None
    return (
        f"programs get {size(most)} of address space, and DVC with PyTorch takes "
        f"{size(LEAST_ADDRESS_SPACE)}"
    )


def prepare_process() -> None:
    """Prepare the process of a stage, before polars and PyTorch are loaded. With too little address
    space they would end it without a word; so it ends here, with a sentence."""
    if found := narrow_address_space():
        way_out = "`ulimit -v unlimited`, or a machine that gives more"
        sys.exit(f"error: {message(f'{found}; {way_out}.')}")
    set_allocators()
    look_for_garbage_rarely()


def end_with_dvc() -> None:
    """Send this process SIGTERM soon after DVC has ended, if DVC is among the processes above it.

    All processes between them are watched, too. Some shells become the command that they run, but
    dash, which is /bin/sh on Debian, remains when DVC is killed.
    """
    above = list[psutil.Process]()
    with contextlib.suppress(psutil.Error):  # one has just ended, or is another user's
        process = psutil.Process()
        while process := process.parent():
            above.append(process)
            if any(Path(word).name in ("dvc", "dvc.exe") for word in process.cmdline()):
                _end_with(above)
                return


def end_with_parent() -> None:
    """Send this process SIGTERM soon after its parent has ended."""
    if parent := psutil.Process().parent():
        _end_with([parent])


def _end_with(others: list[psutil.Process]) -> None:
    def watch() -> None:
        while not any(map(_has_ended, others)):
            time.sleep(LOOK_SECONDS)
        print("the process that started this one is gone", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()


def _has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended, also if its parent has not noticed yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
