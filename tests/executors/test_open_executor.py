"""Which executor params.yaml asks for, and the error if it cannot be opened."""

import os
import re
import socket
import sys

import pytest

from tokenmill.core.errors import UserError
from tokenmill.executors.params import ExecutorParams, open_executor
from tokenmill.executors.ray_cluster import check_versions, versions
from tokenmill.executors.threads import ThreadExecutor

LOCAL = ExecutorParams(data_engine="local", ray_address=None, store=None)


def on_ray(address: str | None) -> ExecutorParams:
    return ExecutorParams(data_engine="ray", ray_address=address, store=None)


def complaint(params: ExecutorParams) -> str:
    with pytest.raises(UserError) as error, open_executor(params):
        pass
    return str(error.value)


def test_local_needs_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with open_executor(LOCAL) as executor:
        assert isinstance(executor, ThreadExecutor)
        assert list(executor.map(os.path.basename, ["a/b", "c"])) == ["b", "c"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert complaint(on_ray(None)) == (
        "runtime.data_engine (ray) needs the package ray: `pip install -e '.[ray]'`, or set it to "
        "local."
    )


@pytest.mark.parametrize("address", ["ray://head:10001", "head", ":6379", "http://head:6379"])
def test_a_malformed_address_is_refused(address: str) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
    assert (
        f"runtime.ray_address ({address}) leads to no Ray cluster (it must be host:port)"
        in complaint(on_ray(address))
    )


def test_a_dead_address_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        assert f"runtime.ray_address ({address}) leads to no Ray cluster (" in complaint(
            on_ray(address)
        )
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert (
            f"runtime.ray_address (null, which is {address}) leads to no Ray cluster ("
            in complaint(on_ray(None))
        )


@pytest.mark.parametrize("other", ["0.1", "999.0", "(none)"])
def test_any_other_version_is_refused(other: str) -> None:
    here = versions()
    check_versions(here)
    for package, version in here.items():
        with pytest.raises(UserError, match=rf" {package} {version},.* {re.escape(other)},"):
            check_versions(here | {package: other})
