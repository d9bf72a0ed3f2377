"""The part of the section `runtime` that the data stages read: on what their work runs."""

from typing import Literal

from tokenmill.params import Section


class EngineParams(Section, extra="ignore"):
    """On what the data stages run; the same bytes on each. The rest of `runtime` is for others."""

    data_engine: Literal["local", "ray"]
    """What `clean` and `tokenize` run on: the cores of this machine, or a Ray cluster (docs/cluster.md). Both give the
    same bytes."""

    ray_address: str | None
    """With `ray`: the cluster's `host:port`; null is what $RAY_ADDRESS names, else the cluster that this machine
    belongs to. A cluster is never started."""
