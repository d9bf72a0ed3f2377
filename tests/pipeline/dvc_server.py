"""A process that has imported DVC and forks for each command: `dvc` takes most of a second to start, a fork none.

Each command is DVC's own `main` in a process of its own, with the folder, the environment and the output it is given.
The stages that it starts are forked, too (stage_server.py).
As a program this reads one JSON object per line and answers with the command's exit code.
"""

import atexit
import functools
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from tests import forks
from tests.pipeline import stage_server

ROOT = Path(__file__).resolve().parents[2]

PRELOADED = ("dvc.cli.parser", "dvc.repo", "dvc.api", "dvc.repo.experiments.queue.celery", "dvc.stage.cache", "celery")
PRELOADED += ("dvc.repo.index", "dvc.repo.experiments.run", "dvc.repo.open_repo", "dvc.data_cloud", "dvc.utils.hydra")
PRELOADED += ("dvc.utils.strictyaml", "ruamel.yaml", "dvc_render", "networkx", "pygit2", "dulwich.porcelain")


class DvcServer:
    """The server as the tests see it; it ends with this process."""

    def __init__(self) -> None:
        self.python = Path(tempfile.mkdtemp(prefix="python-"))
        """The folder of a `python` that forks stages; for the front of PATH."""
        command = [sys.executable, "-m", "tests.pipeline.dvc_server", str(self.python)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        atexit.register(self.close)

    def close(self) -> None:
        """End it, once it has done what was asked."""
        self._process.communicate()
        shutil.rmtree(self.python)

    def run(self, arguments: tuple[str, ...], *, cwd: Path, env: dict[str, str]) -> tuple[int, str]:
        """Run `dvc ARGUMENTS`; give its exit code, and its output and errors together."""
        assert self._process.stdin
        assert self._process.stdout
        with tempfile.NamedTemporaryFile() as output:
            request = {"arguments": arguments, "cwd": str(cwd), "env": env, "output": output.name}
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline()), Path(output.name).read_text(encoding="utf-8")


@functools.cache
def dvc_server() -> DvcServer:
    """The server of this process, started at the first call."""
    return DvcServer()


def serve(python: Path) -> None:
    """Fork and wait, command by command."""
    for name in PRELOADED:
        importlib.import_module(name)
    forks.ready()
    if stage_server.WORKS:
        listener, (alive, other_end) = stage_server.listen(python), os.pipe()
        if not os.fork():
            os.close(other_end)  # which ends with its only owner, this process
            stage_server.serve(listener, alive)
            return
    for line in sys.stdin:
        request = json.loads(line)
        if not (child := os.fork()):
            become_dvc(**request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def become_dvc(arguments: list[str], cwd: str, env: dict[str, str], output: str) -> NoReturn:
    """Do in this process what the program `dvc` does."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND), stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["dvc", *arguments]
    forks.become(lambda: importlib.import_module("dvc.cli").main(arguments))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
