"""A Ray cluster: the same functions over many machines, results in order, items of a dead machine run again.

The nodes run the code of the checkout that drives them: Ray sends the package `tokenmill` to each, so that they need
only the installed packages. A task is one item on one core; several threads inside it would fight with the tasks beside
it. Ray is an optional package and is imported when it is asked for.
"""

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import tokenmill
from tokenmill.engine.window import in_order
from tokenmill.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

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
