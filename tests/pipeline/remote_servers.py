"""Servers for DVC remotes on this machine: an S3 that knows one key and can stall, and sshd."""

import contextlib
import getpass
import logging
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")


class S3:
    """Moto's S3 with a bucket `bucket`; only requests signed with the key `right` are answered."""

    def __init__(self) -> None:
        # This takes seconds
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415
        from werkzeug.serving import make_server  # noqa: PLC0415

        self._moto: Any = DomainDispatcherApplication(create_backend_app)
        self.puts_until_stall: int | None = None
        self.stalled = threading.Event()
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "S3":
        import boto3  # noqa: PLC0415 (as moto)

        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        keys = {
            "aws_access_key_id": "right",
            "aws_secret_access_key": "x",
            "region_name": "us-east-1",
        }
        boto3.client("s3", endpoint_url=self.url, **keys).create_bucket(Bucket="bucket")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if "Credential=right/" not in environ.get("HTTP_AUTHORIZATION", ""):
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>InvalidAccessKeyId</Code><Message>unknown key</Message></Error>"]
        if environ["REQUEST_METHOD"] == "PUT" and self.puts_until_stall is not None:
            self.puts_until_stall -= 1
            while self.puts_until_stall is not None and self.puts_until_stall < 0:
                self.stalled.set()
                time.sleep(0.05)
        return self._moto(environ, start)


@contextlib.contextmanager
def sshd(folder: Path) -> Iterator[tuple[str, Path]]:
    """An sshd of this user: the beginning of its ssh:// address, and the key that opens it."""
    assert SSHD
    folder.mkdir()
    for name in ("host", "key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "key.pub",
        "PidFile": "none",
        "StrictModes": "no",
        "PermitRootLogin": "yes",
        "UsePAM": "no",
        "Subsystem": "sftp internal-sftp",
    }
    settings = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    trial = subprocess.run(
        [SSHD, "-t", "-f", "none", *settings], capture_output=True, text=True, check=False
    )
    if trial.returncode:
        # As where no service made /run/sshd
        pytest.skip(f"sshd does not start ({trial.stderr.strip()}); `mkdir /run/sshd` may help")
    server = subprocess.Popen([SSHD, "-D", "-f", "none", *settings])
    try:
        _wait_for(port)
        yield f"ssh://{getpass.getuser()}@127.0.0.1:{port}", folder / "key"
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int) -> None:
    for _ in range(1200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError("sshd does not listen")
