"""The `python` and the `dvc` that stand in PATH before the real ones: they hand over to
dvc_server.py.

It runs for each command, so it imports little.
"""

import json
import os
import socket
import sys

FORKED = ("stages", "tokenmill", "tokenmill.dvc_import", "dvc", "bench.data.jobs", "tests.faults")


def hand_over(python: str, address: str, *arguments: str) -> int:
    """Let a fork do what the command line says; give its exit code. Any other command line is the
    real Python's."""
    cwd = os.getcwd()  # noqa: PTH109 (see above)
    is_safe = arguments[:1] == ("-P",)
    command = arguments[is_safe:]
    if command[:1] != ("-m",) or command[1] not in FORKED:
        os.execv(python, [python, *arguments])  # noqa: S606
    request = {
        "arguments": command[1:],
        "cwd": cwd,
        "path": [] if is_safe else [cwd],
        "environ": dict(os.environ),
    }
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [b"f"], [0, 1, 2])
        server.sendall(json.dumps(request).encode())
        server.shutdown(socket.SHUT_WR)
        return int(server.recv(8) or 1)


if __name__ == "__main__":
    sys.exit(hand_over(*sys.argv[1:]))
