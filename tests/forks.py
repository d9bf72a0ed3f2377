"""Processes forked from one that has imported everything: each costs what it does, not what it
would have to load."""

import atexit
import contextlib
import gc
import multiprocessing
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import NoReturn
from unittest import mock


def ready() -> None:
    """Before the first fork: no child looks for garbage among the imports, nor takes apart at its
    end what they have set up, which would copy their memory, too."""
    weakref.finalize._registry.clear()  # pyright: ignore[reportAttributeAccessIssue]
    if torch := sys.modules.get("torch._dynamo.utils"):
        atexit.unregister(torch.dump_compile_times)
    gc.collect()
    gc.freeze()


def become(work: Callable[[], object]) -> NoReturn:
    """Do `work`, and end as a program would, except that no module is taken apart: a second's work
    for PyTorch's."""
    code: object = 1
    try:
        code = work() or 0
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    # It waits for threads, as a program does
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


@contextlib.contextmanager
def in_place_of_spawning(*modules: str) -> Iterator[None]:
    """Inside, what `multiprocessing` would spawn is forked from a server that has imported
    `modules`. Windows has no such server, and spawns."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        yield
        return
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload([*modules])
    with mock.patch.object(multiprocessing, "get_context", return_value=forking):
        yield
