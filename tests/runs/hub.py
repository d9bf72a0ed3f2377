# ruff: noqa: ARG002 (every answer has the same arguments)
"""A stand-in of the Hugging Face Hub on this machine: what its client asks for when it uploads a
folder."""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

TOKEN = "hf_of_ada"


@dataclass
class Hub:
    """What the hub holds, and how it misbehaves."""

    large: tuple[str, ...] = ("model.safetensors",)
    """Files that arrive by Git LFS or Xet; the others come in the commit."""
    private: dict[str, bool] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)
    """What Git LFS sent, by SHA-256, and Xet, by the hash of a block of compressed chunks."""
    requests: list[str] = field(default_factory=list)
    ignored: tuple[str, ...] = ()
    """Files that .gitignore there names."""
    refuse: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Path -> status and message."""
    cut_off: str | None = None
    """The path of which only half a body is read before the connection closes."""
    url: str = ""


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    """The hub, on a port of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"hub": hub}))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def _serve(self) -> None:
        path = urlsplit(self.path).path
        action = path.rsplit("/", 2)[-2] if "/api/models/" in path else path.rsplit("/", 1)[-1]
        self.hub.requests.append(f"{self.command} {path}")
        length = int(self.headers.get("Content-Length", 0))
        if self.hub.cut_off and self.hub.cut_off in path:
            self.rfile.read(length // 2)
            self.close_connection = True
            return
        body = self.rfile.read(length)
        refused = next((answer for part, answer in self.hub.refuse.items() if part in path), None)
        if (
            not path.startswith(("/stored/", "/cas/"))
            and self.headers.get("Authorization") != f"Bearer {TOKEN}"
        ):
            refused = (401, "Invalid credentials in Authorization header")
        if refused:
            self._answer({"error": refused[1]}, refused[0])
        elif path.startswith(("/stored/", "/cas/v1/xorbs/")):
            self.hub.stored[path.rsplit("/", 1)[-1]] = body
            self._answer({"was_inserted": True})
        elif path.startswith("/cas/"):
            # Newer ways are not there
            self._answer({"result": 1}, 200 if path == "/cas/v1/shards" else 404)
        else:
            known = {
                "create": self._create,
                "validate-yaml": self._nothing,
                "preupload": self._preupload,
                "xet-write-token": self._xet,
            }
            known |= {"batch": self._batch, "commit": self._commit}
            self._answer(*known.get(action, self._info)(path, body))

    do_GET = do_POST = do_PUT = _serve  # noqa: N815

    def _create(self, path: str, body: bytes) -> tuple[Any, int]:
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        existed = name in self.hub.private
        self.hub.private.setdefault(name, asked["visibility"] == "private")
        return {"url": f"{self.hub.url}/{name}"}, 409 if existed else 200

    def _nothing(self, path: str, body: bytes) -> tuple[Any, int]:
        return {"warnings": [], "errors": []}, 200

    def _preupload(self, path: str, body: bytes) -> tuple[Any, int]:
        names = [file["path"] for file in json.loads(body)["files"]]
        modes = {name: "lfs" if name in self.hub.large else "regular" for name in names}
        return {
            "files": [
                {"path": name, "uploadMode": mode, "shouldIgnore": name in self.hub.ignored}
                for name, mode in modes.items()
            ]
        }, 200

    def _batch(self, path: str, body: bytes) -> tuple[Any, int]:
        objects = [{"oid": one["oid"], "size": one["size"]} for one in json.loads(body)["objects"]]
        for one in objects:
            if one["oid"] not in self.hub.stored:
                one["actions"] = {"upload": {"href": f"{self.hub.url}/stored/{one['oid']}"}}
        return {"transfer": "basic", "objects": objects}, 200

    def _xet(self, path: str, body: bytes) -> tuple[Any, int]:
        return {
            "casUrl": f"{self.hub.url}/cas",
            "exp": int(time.time()) + 3600,
            "accessToken": "of a moment",
        }, 200

    def _commit(self, path: str, body: bytes) -> tuple[Any, int]:
        new: dict[str, bytes] = {}
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                new[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                new[value["path"]] = self.hub.stored.get(value["oid"]) or str(value["oid"]).encode()
        self.hub.files.setdefault(_repository(path), {}).update(new)
        return {
            "commitUrl": f"{self.hub.url}/{_repository(path)}/commit/1",
            "commitOid": "1" * 40,
        }, 200

    def _info(self, path: str, body: bytes) -> tuple[Any, int]:
        name = _repository(path)
        return {"id": name, "private": self.hub.private[name], "sha": "1" * 40, "siblings": []}, 200

    def _answer(self, content: Any, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status >= 400:
            self.send_header(
                "X-Error-Message",
                content.get("error", "").encode("latin-1", "replace").decode("latin-1"),
            )
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name of the class above)
        """Print nothing."""


def _repository(path: str) -> str:
    return "/".join(path.removeprefix("/api/models/").split("/")[:2])
