"""A stage does not outlive the DVC that started it."""

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")

DVC = "import subprocess, sys; subprocess.run(['/bin/sh', '-c', sys.argv[1]])"
STAGE = """
import os, signal, time
from tokenmill.process import end_with_dvc
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"ended\\n"), os._exit(1)))
end_with_dvc()
print("started", flush=True)
time.sleep({seconds})
print("done", flush=True)
"""


def started(
    folder: Path, name: str, *, shell: str = "{}", seconds: float = 60
) -> "subprocess.Popen[str]":
    """A program called `name` whose shell runs a stage; it is running."""
    (folder / name).write_text(DVC)
    stage = shlex.join([sys.executable, "-c", STAGE.format(seconds=seconds)])
    command = [sys.executable, str(folder / name), shell.format(stage)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "started\n"
    return process


@pytest.mark.parametrize("shell", ["exec {}", "{}; :"], ids=["becomes the stage", "stays"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["KILL", "TERM"])
def test_a_stage_ends_with_dvc(tmp_path: Path, shell: str, number: signal.Signals):
    with started(tmp_path, "dvc", shell=shell) as process:
        process.send_signal(number)
        assert process.stdout
        assert process.stdout.readline() == "ended\n"


def test_a_stage_that_a_person_started_goes_on(tmp_path: Path):
    with started(tmp_path, "job", seconds=2) as process:
        process.kill()
        assert process.stdout
        assert process.stdout.read() == "done\n"
