"""How long waiting threads spin: decided by the load of the machine, and never against the user's
own setting."""

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from tests.imports import ROOT
from tokenmill import process

QUIET = {
    name: value
    for name, value in os.environ.items()
    if name not in {"GOMP_SPINCOUNT", "OMP_NUM_THREADS"}
}


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems are left alone")


@on_linux
def test_threads_sleep_early_beside_busy_processes():
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    code = (
        "import os; from tokenmill.process import *; "
        "set_wait_policy(); print(os.environ['GOMP_SPINCOUNT'])"
    )
    try:
        said = subprocess.check_output(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=QUIET | {"PYTHONPATH": str(ROOT / "src")},
            text=True,
        )
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert said.strip() == str(process.SPIN_COUNT)


@on_linux
@pytest.mark.parametrize(
    ("running", "cores", "own", "said"),
    [
        ("1/80", 2, {}, None),
        ("2/80", 2, {}, "1000"),
        ("2/80", 2, {"GOMP_SPINCOUNT": "7"}, "7"),
        ("2/80", 2, {"OMP_NUM_THREADS": "1"}, None),
        ("2/80", 3, {}, None),
        ("", 2, {}, None),
    ],
    ids=[
        "alone",
        "beside one",
        "the user's word",
        "room for both",
        "cores of their own",
        "another system",
    ],
)
def test_threads_sleep_early_only_where_cores_are_wanted(
    running: str, cores: int, own: dict[str, str], said: str | None, tmp_path: Path
):
    load = tmp_path / "loadavg"
    environment = dict(own)
    if running:
        load.write_text(f"0.00 0.00 0.00 {running} 77\n")
    with (
        mock.patch.object(process, "LOAD", load),
        mock.patch.object(os, "cpu_count", return_value=cores),
        mock.patch.object(os, "sched_getaffinity", return_value={0, 1}),
        mock.patch.object(os, "environ", environment),
    ):
        process.set_wait_policy()
    assert environment.get("GOMP_SPINCOUNT") == said


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch):
    """On macOS and Windows Python cannot tell the cores of a process."""
    for name in ("GOMP_SPINCOUNT", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    process.set_wait_policy()
    assert "GOMP_SPINCOUNT" not in os.environ


@pytest.mark.skipif(sys.platform != "linux", reason="only there can PyTorch's segments grow")
@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "_RJEM_MALLOC_CONF"])
def test_allocators_give_back_unless_the_user_says_otherwise(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    names = {"PYTORCH_ALLOC_CONF", "_RJEM_MALLOC_CONF"}
    monkeypatch.setattr(os, "environ", given := {name: "own"})
    process.set_allocators()
    assert given.keys() == names
    assert [one for one in names if given[one] == "own"] == [name]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere polars has another allocator")
def test_polars_understands_what_its_allocator_is_told():
    told: dict[str, str] = {}
    with mock.patch.object(os, "environ", told):
        process.set_allocators()
    strict = {"_RJEM_MALLOC_CONF": f"abort_conf:true,{told['_RJEM_MALLOC_CONF']}"}
    subprocess.run(
        [sys.executable, "-c", "import polars"], env=os.environ | strict, check=True, timeout=60
    )
