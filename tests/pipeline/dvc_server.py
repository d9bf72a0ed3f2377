"""A process that has imported DVC and forks for each command: `dvc` takes most of a second to start, a fork none.

Each command is DVC's own `main` in a process of its own, with the folder, the environment and the output it is given.
As a program this reads one JSON object per line and answers with the command's exit code.
"""

import atexit
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

PRELOADED = ("dvc.cli.parser", "dvc.repo", "dvc.api", "dvc.repo.experiments.queue.celery", "dvc.stage.cache", "celery")


class DvcServer:
    """The server as the tests see it; it ends with this process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(self.close)

    def close(self) -> None:
        """End it, once it has done what was asked."""
        self._process.communicate()

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


def serve() -> None:
    """Fork and wait, command by command."""
    for name in PRELOADED:
        importlib.import_module(name)
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
    sys.exit(importlib.import_module("dvc.cli").main(arguments))


if __name__ == "__main__":
    serve()
