"""The part of the section `runtime` that the data stages read: on what their work runs.

What a data stage may ask of whatever runs its work: a function over items, in order.

Keep a bounded number of items under way, and hand out their results in the order of the items.

Threads of this process: for work that releases the interpreter's lock, as polars and the encoders do.

A Ray cluster: the same functions over many machines, results in order, items of a dead machine run again.

The nodes run the code of the checkout that drives them: Ray sends the package `tokenmill` to each, so that they need
only the installed packages. A task is one item on one core; several threads inside it would fight with the tasks beside
it. Ray is an optional package and is imported when it is asked for.

The engine that params.yaml names.

Work in one thread on what comes next while another uses what is there.
"""

import contextlib
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol, TypeVar

import tokenmill
from tokenmill.core.errors import UserError
from tokenmill.core.params import Section


class EngineParams(Section, extra="ignore"):
    """On what the data stages run; the same bytes on each. The rest of `runtime` is for others."""

    data_engine: Literal["local", "ray"]
    """What `clean` and `tokenize` run on: the cores of this machine, or a Ray cluster (docs/cluster.md). Both give the
    same bytes."""

    ray_address: str | None
    """With `ray`: the cluster's `host:port`; null is what $RAY_ADDRESS names, else the cluster that this machine
    belongs to. A cluster is never started."""


Item = TypeVar("Item")


Result = TypeVar("Result")


class Engine(Protocol):
    """Runs a function over items; which engine it is changes how fast, never what comes out."""

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield `function(item)` for every item, in the order of the items.

        `items` is read in the caller's thread, no further ahead than a bounded number of items under way, so that
        memory is bounded. What `function` or `items` raises is raised as itself, after the results of the items
        before it. Closing the iterator cancels what has not begun.

        `function`, items and results must be picklable, and `function` the same in every process: an engine may run it
        on another machine, and again where one died.
        """
        ...


Handle = TypeVar("Handle")


def in_order(
    items: Iterable[Item],
    *,
    start: Callable[[Item], Handle],
    finish: Callable[[Handle], Result],
    cancel: Callable[[Handle], object],
    room: Callable[[], int],
) -> Iterator[Result]:
    """Yield `finish(start(item))` for every item, with at most `room()` items started and not yet yielded.

    What `items`, `start` or `finish` raises comes after the results of the items before it. When the iterator ends
    early, what is still under way goes to `cancel`.
    """
    source, more, trouble = iter(items), True, None
    waiting: deque[Handle] = deque()
    try:
        while more or waiting:
            if more and len(waiting) < room():
                try:
                    waiting.append(start(next(source)))
                except StopIteration:
                    more = False
                except Exception as error:
                    more, trouble = False, error
            else:
                yield finish(waiting.popleft())
        if trouble is not None:
            raise trouble
    finally:
        for handle in waiting:
            cancel(handle)


class LocalEngine:
    """An `Engine` of `threads` threads.

    While the caller is at a result, each thread is at an item and one more waits: threads + 2 under way in all.
    """

    def __init__(self, *, threads: int):
        self._threads = threads

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """See `Engine.map`; ending early waits for the items that a thread is at."""
        with ThreadPoolExecutor(self._threads) as pool:
            yield from in_order(
                items,
                start=partial(pool.submit, function),
                finish=Future[Result].result,
                cancel=Future[Result].cancel,
                room=lambda: self._threads + 2,
            )


RETRIES = 10
"""How often an item is begun anew when its machine or process dies. Bounded, for an item may itself be the reason."""


ITEMS_PER_CORE = 2
"""Under way: one that is worked at, and one that is waiting for the core."""


PATIENCE_SECONDS = 10.0
"""How long a cluster may take to accept a connection."""


ONE_THREAD = dict.fromkeys(("POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS"), "1")


class RayEngine:
    """An `Engine` on the cluster that this process is connected to."""

    def __init__(self, ray: ModuleType, address: str):
        self._ray, self._address = ray, address

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """See `Engine.map`. `function` is sent once, however large what it holds is.

        Raises:
            UserError: the cluster cannot finish an item.
        """
        task = self._ray.remote(num_cpus=1, max_retries=RETRIES)(_apply)
        return in_order(
            items,
            start=partial(task.remote, self._ray.put(function), Path.cwd()),
            finish=self._result,
            cancel=self._ray.cancel,
            room=self._room,
        )

    def _room(self) -> int:
        """Items under way at most; nodes may come and go."""
        return max(1, ITEMS_PER_CORE * int(self._ray.cluster_resources().get("CPU", 0)))

    def _result(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            raise UserError(
                f"The Ray cluster at {self._address} could not finish its work ({type(error).__name__}: "
                f"{_first_line(error)}); look at it with `ray status`, or set runtime.data_engine to local."
            ) from error


@contextlib.contextmanager
def ray_engine(address: str | None) -> Iterator[RayEngine]:
    """Connect to a running cluster for the length of the block.

    Raises:
        UserError: Ray is not installed, or no cluster answers at `address`.
    """
    ray, where = _imported(), address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        _knock(where)
        ray.init(
            address=where,
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
            f"runtime.ray_address ({address or f'null, which is {where}'}) leads to no Ray cluster "
            f"({_first_line(error)}); start one with `ray start --head`, or set runtime.data_engine to local."
        ) from None
    try:
        yield RayEngine(ray, where)
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Fail at once where nobody listens: Ray would try for minutes."""
    if address != "auto":
        host, _, port = address.rpartition(":")
        if not (host and port.isdigit()) or "/" in host:
            raise ValueError("it must be host:port")
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_SECONDS).close()


def _imported() -> ModuleType:
    try:
        import ray  # noqa: PLC0415  (an optional package)
        import ray.exceptions  # noqa: PLC0415
    except ImportError:
        raise UserError(
            "runtime.data_engine (ray) needs the package ray: `pip install -e '.[ray]'`, or set it to local."
        ) from None
    return ray


def _apply(function: Callable[[Item], Result], folder: Path, item: Item) -> Result:
    """What a task does: relative paths mean what they mean to the caller, on a node that has the caller's folder."""
    if folder.is_dir():
        os.chdir(folder)
    return function(item)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def open_engine(params: EngineParams, *, threads: int) -> Iterator[Engine]:
    """Give an engine for the length of the block; `threads` is how many the local one uses.

    Raises:
        UserError: Ray is asked for and is not installed, or its cluster is not there.
    """
    if params.data_engine == "local":
        yield LocalEngine(threads=threads)
    else:
        with ray_engine(params.ray_address) as engine:
            yield engine


_END = object()


def ahead(items: Iterable[Item], depth: int = 2) -> Iterator[Item]:
    """Yield `items` in their order, computed in a thread of its own at most `depth` items ahead.

    It pays where the work releases the interpreter's lock: reading, encoding, compressing. An exception in
    `items` is raised here; closing the generator ends the thread after the item it is at.
    """
    iterator = iter(items)
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        waiting = deque(pool.submit(next, iterator, _END) for _ in range(depth))
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(pool.submit(next, iterator, _END))
            yield item  # pyright: ignore[reportReturnType]  (the sentinel is gone)
            del item
    finally:
        pool.shutdown(cancel_futures=True)
