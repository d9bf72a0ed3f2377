"""Stages and commands that DVC starts, forked from a process that has their libraries: importing PyTorch takes seconds.

A `python` before the real one in PATH (forked_python.py) hands `python -m stages …` and `python -m tokenmill …` over,
with its folder, environment, input and outputs. The code of TokenMill itself is imported in the fork, from where a new
process would take it.
"""

import contextlib
import importlib
import json
import os
import runpy
import select
import shlex
import socket
import sys
from pathlib import Path
from typing import NoReturn

from tests import forks
from tests.pipeline import forked_python

WORKS = hasattr(os, "pidfd_open")
"""Linux; elsewhere every stage is a new process."""

PRELOADED = ("torch", "pandas", "polars", "tokenizers", "splintr", "safetensors.torch", "ruamel.yaml", "filelock")
PRELOADED += ("pydantic.main", "pydantic.type_adapter", "pydantic.dataclasses", "pydantic.json_schema", "dvc.repo")
PRELOADED += ("rich.progress", "rich.table", "jinja2", "zstandard", "xxhash", "orjson", "ijson", "chardet", "psutil")


def listen(folder: Path) -> socket.socket:
    """Put `python` into a folder; give the socket on which it asks."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "socket"))
    listener.listen()
    client = ["exec", sys.executable, "-IS", forked_python.__file__, sys.executable, str(folder / "socket")]
    (folder / "python").write_text(f'#!/bin/sh\n{shlex.join(client)} "$@"\n')
    (folder / "python").chmod(0o755)
    return listener


def serve(listener: socket.socket, alive: int) -> None:
    """Fork for each request, until the other end of `alive` is closed."""
    for name in PRELOADED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    forks.ready()
    running: dict[int, tuple[int, socket.socket]] = {}
    while alive not in (ready := select.select([listener.fileno(), alive, *running], [], [])[0]):
        for pidfd in set(ready) & set(running):
            pid, client = running.pop(pidfd)
            client.sendall(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
            client.close()
            os.close(pidfd)
        if listener.fileno() in ready:
            client, _ = listener.accept()
            if not (pid := os.fork()):
                become(client)
            running[os.pidfd_open(pid)] = pid, client


def become(client: socket.socket) -> NoReturn:
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
    sys.argv, sys.path[0] = [name, *arguments], request["cwd"]
    forks.become(lambda: runpy.run_module(name, run_name="__main__", alter_sys=True) and None)
