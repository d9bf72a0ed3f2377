"""Stages and commands that DVC starts, forked from a process that has their libraries: importing PyTorch takes seconds.

A `python` before the real one in PATH hands `python -m stages …` and `python -m tokenmill …` over, with its folder,
environment, input and outputs. The code of TokenMill itself is imported in the fork, from where a new process would
take it. Any other command line is the real Python's.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shlex
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

WORKS = hasattr(os, "pidfd_open")
"""Linux; elsewhere every stage is a new process."""

PRELOADED = ("torch", "pandas", "polars", "tokenizers", "splintr", "safetensors.torch", "pydantic", "ruamel.yaml")
PRELOADED += ("rich.console", "jinja2", "zstandard", "xxhash", "orjson", "ijson", "chardet", "psutil")


def listen(folder: Path) -> socket.socket:
    """Put `python` into a folder; give the socket on which it asks."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "socket"))
    listener.listen()
    client = ["exec", sys.executable, "-IS", __file__, sys.executable, str(folder / "socket")]
    (folder / "python").write_text(f'#!/bin/sh\n{shlex.join(client)} "$@"\n')
    (folder / "python").chmod(0o755)
    return listener


def hand_over(python: str, address: str, *arguments: str) -> int:
    """Be the `python` in PATH; give the exit code."""
    if arguments[:2] not in (("-m", "stages"), ("-m", "tokenmill")):
        os.execv(python, [python, *arguments])  # noqa: S606
    request = {"arguments": arguments[1:], "cwd": str(Path.cwd()), "environ": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [b"f"], [0, 1, 2])
        server.sendall(json.dumps(request).encode())
        server.shutdown(socket.SHUT_WR)
        return int(server.recv(8) or 1)


def serve(listener: socket.socket, alive: int) -> None:
    """Fork for each request, until the other end of `alive` is closed."""
    for name in PRELOADED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.freeze()
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
    code: object = 1
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else 1)  # a new process would not have to take so many modules apart


if __name__ == "__main__":
    sys.exit(hand_over(*sys.argv[1:]))
