"""Which engine params.yaml asks for, and the sentence where it cannot be had."""

import os
import socket
import sys

import pytest

from tokenmill.core.errors import UserError
from tokenmill.core.executor import EngineParams, LocalEngine, open_engine

LOCAL = EngineParams(data_engine="local", ray_address=None)


def on_ray(address: str | None) -> EngineParams:
    return EngineParams(data_engine="ray", ray_address=address)


def complaint(params: EngineParams) -> str:
    with pytest.raises(UserError) as error, open_engine(params, threads=1):
        pass
    return str(error.value)


def test_local_needs_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with open_engine(LOCAL, threads=2) as engine:
        assert isinstance(engine, LocalEngine)
        assert list(engine.map(os.path.basename, ["a/b", "c"])) == ["b", "c"]


def test_without_the_package_the_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert complaint(on_ray(None)) == (
        "runtime.data_engine (ray) needs the package ray: `pip install -e '.[ray]'`, or set it to local."
    )


@pytest.mark.parametrize("address", ["ray://head:10001", "head", ":6379", "http://head:6379"])
def test_an_address_that_is_none_is_refused_before_ray_tries(address: str) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
    assert f"runtime.ray_address ({address}) leads to no Ray cluster (it must be host:port)" in complaint(
        on_ray(address)
    )


def test_an_address_where_nobody_listens_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        assert f"runtime.ray_address ({address}) leads to no Ray cluster (" in complaint(on_ray(address))
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert f"runtime.ray_address (null, which is {address}) leads to no Ray cluster (" in complaint(on_ray(None))
