"""Which warnings fail a test: those of our modules, and not what a library leaves behind."""

import subprocess
import sys
from pathlib import Path

from tests.imports import ROOT

INNER = '''
import gc, warnings
import pytest

def run(code, module):
    exec(code, {"__name__": module, "__file__": __file__})

@pytest.mark.parametrize(
    "module", ["tokenmill.data.clean", "stages.train", "bench.gpu", "aiohttp.client"]
)
def test_deprecation(module):
    run("import warnings; warnings.warn('old', DeprecationWarning)", module)

@pytest.mark.parametrize("module", ["tokenmill.data.clean", "aiohttp.client"])
def test_file_let_go(module):
    run("open(__file__)", module)

def test_socket_in_a_cycle():
    """As a library's connection, found while our code runs."""
    cycle = ["import socket; cycle = [socket.socket()]; cycle.append(cycle); del cycle"]
    gc.disable()
    run(*cycle, "aiohttp.client")
    run("import gc; gc.collect(); gc.enable()", "tokenmill.data.clean")

def test_thread_that_fails():
    code = "import threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()"
    run(code, "aiohttp")
'''


def test_warnings_of_our_modules_fail_and_no_others(tmp_path: Path) -> None:
    """The settings of this run on tests that warn, each in the name of a module."""
    (tmp_path / "test_inner.py").write_text(INNER)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path]
    options = ["-p", "tests.leftovers", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", "-rA"]
    done = subprocess.run(
        [*command, *options, tmp_path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    ended = dict[str, str]()
    for line in done.stdout.splitlines():
        how, _, name = line.split(" - ")[0].partition(" ")
        if how in ("PASSED", "FAILED"):
            ended[name.rpartition("::")[2]] = how
    assert ended == {
        "test_deprecation[tokenmill.data.clean]": "FAILED",
        "test_deprecation[stages.train]": "FAILED",
        "test_deprecation[bench.gpu]": "FAILED",
        "test_deprecation[aiohttp.client]": "PASSED",
        "test_file_let_go[tokenmill.data.clean]": "FAILED",
        "test_file_let_go[aiohttp.client]": "PASSED",
        "test_socket_in_a_cycle": "PASSED",
        "test_thread_that_fails": "FAILED",
    }, done.stdout
