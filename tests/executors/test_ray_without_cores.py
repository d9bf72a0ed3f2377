"""A Ray cluster that cannot work says so."""

import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from tokenmill.core.errors import UserError
from tokenmill.executors import ray_cluster
from tokenmill.executors.params import ExecutorParams, open_executor

pytestmark = pytest.mark.slow


@pytest.fixture
def coreless(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster that is only a head without cores."""
    # Here, for this takes most of a second, which only slow tests need
    pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
    cluster_utils: Any = pytest.importorskip("ray.cluster_utils")
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # a name short enough for sockets
    monkeypatch.setenv("RAY_TMPDIR", folder)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    head = {"num_cpus": 0, "object_store_memory": 100 << 20, "include_dashboard": False}
    nodes = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        yield nodes.address
    finally:
        nodes.shutdown()
        shutil.rmtree(folder)


def test_a_cluster_without_cores_is_named(coreless: str, monkeypatch) -> None:
    monkeypatch.setattr(ray_cluster, "CORELESS_SECONDS", 0.5)
    params = ExecutorParams(data_engine="ray", ray_address=coreless, store=None)
    with (
        open_executor(params) as executor,
        pytest.raises(UserError, match=rf"{coreless} has no core .*it has: memory .*node:"),
    ):
        list(executor.map(abs, [1]))
