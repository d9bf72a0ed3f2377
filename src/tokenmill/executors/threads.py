"""Tasks in threads of this process.

Threads suit work that releases the interpreter's lock, as polars and the encoders do.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Self

from tokenmill.core.files import read_bytes
from tokenmill.executors.base import Executor, Task

WAITING = 2
"""Tasks that wait for a thread, so that none is idle while the caller starts the next one."""


CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
"""Where Linux tells the time of processors that a container gets: its quota, and of what period."""


def own_cores() -> int:
    """The number of cores that this process may use: those that the system gives it, or fewer if
    its container has a quota."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # no container, or `max`
        quota, period = map(int, read_bytes(CPU_MAX).split())
        cores = min(cores, max(1, round(quota / period)))
    return cores


class ThreadExecutor(Executor):
    """An `Executor` of `threads` threads, by default one for each of `own_cores`. Its `with` block
    ends the threads; without one they end with the object."""

    task_bytes = 8 << 20
    wave_limits = 1

    def __init__(self, *, threads: int | None = None):
        threads = threads or own_cores()
        self._pool = ThreadPoolExecutor(threads)
        self._limit = threads + WAITING

    def start(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        values: int = 1,
        group: int | None = None,  # noqa: ARG002 (there is one machine)
        keep: Sequence[Task] = (),  # noqa: ARG002 (it is not lost)
    ) -> tuple[Task, ...]:
        """See `Executor.start`. Tasks begin in the order in which they are started."""
        future = self._pool.submit(self._run, function, arguments)
        return tuple(Task(future, part=part) for part in (range(values) if values > 1 else [None]))

    def _run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return function(*(self.result(one) if isinstance(one, Task) else one for one in arguments))

    def result(self, task: Task) -> Any:
        """See `Executor.result`."""
        value = task.future.result()
        return value if task.part is None else value[task.part]

    def cancel(self, task: Task) -> None:
        """See `Executor.cancel`; waits for a task that has begun."""
        if not task.future.cancel():
            wait([task.future])

    def limit(self) -> int:
        """See `Executor.limit`."""
        return self._limit

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
