"""Run a function over items, in their order: in threads of this process, or on a Ray cluster.

The executor changes how fast a data stage runs, never what it writes. Threads suit work that
releases the interpreter's lock, as polars and the encoders do. Ray (Moritz et al. 2018) is an
optional package, imported only when it is asked for.
"""

import contextlib
import itertools
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol, TypeVar

import tokenmill
from tokenmill.core.errors import UserError, first_line
from tokenmill.core.params import Section

Item = TypeVar("Item")
Result = TypeVar("Result")
Handle = TypeVar("Handle")


class ExecutorParams(Section, extra="ignore"):
    """Where the data stages run. They ignore the other parameters of the section `runtime`."""

    data_engine: Literal["local", "ray"]
    """What `clean` and `tokenize` run on: the cores of this machine, or a Ray cluster
    (docs/cluster.md). Both give the same bytes."""

    ray_address: str | None
    """With `ray`: the cluster's `host:port`; null means $RAY_ADDRESS, or else the cluster that this
    machine belongs to. A cluster is never started."""


class Executor(Protocol):
    """Runs a function over items."""

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield `function(item)` for every item, in the order of the items.

        `items` is read in the caller's thread, and only a bounded number of items ahead, so that
        memory is bounded. An exception from `function` or `items` is raised as it is, after the
        results of the items before it. Closing the iterator cancels the items that have not begun.

        `function`, items and results must be picklable and `function` must be pure: an executor may
        run it on another machine, and again if a machine dies.
        """
        ...


@contextlib.contextmanager
def open_executor(params: ExecutorParams, *, threads: int) -> Iterator[Executor]:
    """Open the executor that params.yaml names; `threads` is for the local one."""
    if params.data_engine == "local":
        yield ThreadExecutor(threads=threads)
        return
    ray = _import_ray()
    address = _connect(ray, params.ray_address)
    try:
        yield RayExecutor(ray, address)
    finally:
        ray.shutdown()


def ordered_window(
    items: Iterable[Item],
    *,
    start: Callable[[Item], Handle],
    finish: Callable[[Handle], Result],
    cancel: Callable[[Handle], object],
    limit: Callable[[], int],
) -> Generator[Result, None, None]:
    """Yield `finish(start(item))` for every item, in order, with at most `limit()` items started
    and not yet yielded.

    An exception from `items`, `start` or `finish` is raised after the results of the items before
    it. If the iterator ends early, `cancel` is called for the items under way.
    """
    source = iter(items)
    exhausted = False
    failure = None
    under_way: deque[Handle] = deque()
    try:
        while not exhausted or under_way:
            if exhausted or len(under_way) >= limit():
                yield finish(under_way.popleft())
                continue
            try:
                under_way.append(start(next(source)))
            except StopIteration:
                exhausted = True
            except Exception as error:
                exhausted = True
                failure = error
        if failure is not None:
            raise failure
    finally:
        for handle in under_way:
            cancel(handle)


class ThreadExecutor:
    """An `Executor` of `threads` threads, with at most threads + `waiting` items under way."""

    def __init__(self, *, threads: int, waiting: int = 2):
        self._threads = threads
        self._limit = threads + waiting

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Generator[Result, None, None]:
        """See `Executor.map`; closing the iterator waits for the items that have begun."""
        with ThreadPoolExecutor(self._threads) as pool:
            yield from ordered_window(
                items,
                start=partial(pool.submit, function),
                finish=Future[Result].result,
                cancel=Future[Result].cancel,
                limit=lambda: self._limit,
            )


_END: Any = object()


def prefetch(items: Iterable[Item], depth: int = 2) -> Iterator[Item]:
    """Yield `items` in their order, while one thread computes at most `depth` of them ahead.

    This pays if computing them releases the interpreter's lock, as reading, encoding and
    compressing do. An exception in `items` is raised here; closing the iterator waits for the item
    that has begun.
    """
    iterator = iter(items)
    ahead = ThreadExecutor(threads=1, waiting=depth).map(
        lambda _: next(iterator, _END), itertools.repeat(None)
    )
    with contextlib.closing(ahead):
        yield from itertools.takewhile(lambda item: item is not _END, ahead)


MAX_RETRIES = 10
"""How often an item starts again after its machine or process died. The number is bounded, because
the item may be the reason."""

ITEMS_PER_CORE = 2
"""The number of items under way for each core of a cluster: one runs, one waits."""

CONNECT_SECONDS = 10.0
"""Seconds that a cluster may take to accept a connection."""

CORELESS_SECONDS = 60.0
"""Seconds that a cluster may be without a core. One that grows by itself starts its machines
meanwhile."""

ONE_THREAD = dict.fromkeys(("POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS"), "1")
"""Environment variables for a Ray task, which has one core. More threads would compete with the
tasks beside it."""


class RayExecutor:
    """An `Executor` on the connected Ray cluster: one item is one task on one core."""

    def __init__(self, ray: ModuleType, address: str):
        self._ray = ray
        self._address = address

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """See `Executor.map`. `function` is sent to the cluster once, however large it is."""
        task = self._ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(_run_task)
        return ordered_window(
            items,
            start=partial(task.remote, self._ray.put(function), Path.cwd()),
            finish=self._result,
            cancel=self._ray.cancel,
            limit=self._limit,
        )

    def _cores(self) -> int:
        """The cores of the cluster now. Nodes may join and leave."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    def _limit(self) -> int:
        return max(1, ITEMS_PER_CORE * self._cores())

    def _wait(self, reference: Any) -> None:
        """Wait for a result, but only CORELESS_SECONDS while the cluster has no core."""
        while not self._ray.wait([reference], timeout=CORELESS_SECONDS)[0]:
            if not self._cores():
                has = ", ".join(
                    f"{name} {amount:g}"
                    for name, amount in sorted(self._ray.cluster_resources().items())
                )
                raise UserError(
                    f"The Ray cluster at {self._address} has no core for a task (it has: {has}); "
                    "start a node with cores by `ray start --address …`, or set "
                    "runtime.data_engine to local."
                )

    def _result(self, reference: Any) -> Any:
        try:
            self._wait(reference)
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            raise UserError(
                f"The Ray cluster at {self._address} could not finish its work "
                f"({type(error).__name__}: {first_line(error)}); look at it with `ray status`, or "
                "set runtime.data_engine to local."
            ) from error


def _connect(ray: ModuleType, address: str | None) -> str:
    """Connect to a running cluster and return its address.

    Ray sends the package `tokenmill` of this checkout to every node, so a node needs only the
    installed dependencies.
    """
    target = address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        _check_connection(target)
        ray.init(
            address=target,
            runtime_env={
                "py_modules": [str(Path(tokenmill.__file__).parent)],
                "excludes": ["__pycache__"],
                "env_vars": ONE_THREAD,
            },
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"runtime.ray_address ({address or f'null, which is {target}'}) leads to no Ray "
            f"cluster ({first_line(error)}); start one with `ray start --head`, or set "
            "runtime.data_engine to local."
        ) from None
    return target


def _check_connection(address: str) -> None:
    """Fail at once if nothing listens at `address`. Ray would try for minutes."""
    if address != "auto":
        host, _, port = address.rpartition(":")
        if not (host and port.isdigit()) or "/" in host:
            raise ValueError("it must be host:port")
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


def _import_ray() -> ModuleType:
    try:
        import ray  # noqa: PLC0415  (an optional package)
        import ray.exceptions  # noqa: PLC0415
    except ImportError:
        raise UserError(
            "runtime.data_engine (ray) needs the package ray: `pip install -e '.[ray]'`, or set "
            "it to local."
        ) from None
    return ray


def _run_task(function: Callable[[Item], Result], folder: Path, item: Item) -> Result:
    """The body of a Ray task. It runs in the caller's folder if the node has it, so that relative
    paths are valid."""
    if folder.is_dir():
        os.chdir(folder)
    return function(item)
