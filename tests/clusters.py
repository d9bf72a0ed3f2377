"""A Ray cluster of our own on this machine."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

NODE = {"object_store_memory": 100 << 20}
HEAD = NODE | {"include_dashboard": False, "_system_config": {"health_check_period_ms": 500}}
"""A refused connection counts soon, so that a death is seen within seconds; a slow answer has as
long as ever."""


@pytest.fixture(scope="module")
def cluster(bucket: str) -> Iterator[Any]:
    """Two nodes of one core that reach the bucket; nothing of them is left afterwards, in a folder
    with a name short enough for sockets."""
    pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
    cluster_utils: Any = pytest.importorskip("ray.cluster_utils")
    if " " in sys.executable:
        pytest.skip("Ray starts no worker where the path of Python has a space")
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        nodes = cluster_utils.Cluster(initialize_head=True, head_node_args=HEAD | {"num_cpus": 1})
        try:
            nodes.add_node(num_cpus=1, **NODE)
            yield nodes
        finally:
            nodes.shutdown()
            shutil.rmtree(folder)
