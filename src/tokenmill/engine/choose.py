"""The engine that params.yaml names."""

import contextlib
from collections.abc import Iterator

from tokenmill.engine.engine import Engine
from tokenmill.engine.local import LocalEngine
from tokenmill.engine.params import EngineParams
from tokenmill.engine.ray import ray_engine


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
