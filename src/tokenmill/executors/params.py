"""Where the data stages run, and the executor for it."""

import contextlib
from collections.abc import Iterator
from typing import Literal

from tokenmill.core.params import Section, SharedPlace
from tokenmill.executors.base import Executor
from tokenmill.executors.ray_cluster import connected
from tokenmill.executors.threads import ThreadExecutor


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


@contextlib.contextmanager
def open_executor(params: ExecutorParams) -> Iterator[Executor]:
    """Open the executor that params.yaml names."""
    is_local = params.data_engine == "local"
    chosen = ThreadExecutor() if is_local else connected(params.ray_address)
    with chosen as executor:
        yield executor
