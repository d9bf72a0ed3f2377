"""The demo of a project, served by a thread or by a process of its own, and what a browser would
ask it."""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.imports import ROOT
from tokenmill.demo import server
from tokenmill.demo.models import Models
from tokenmill.demo.pages import Pages
from tokenmill.evaluation.sampling import Sampling

SAMPLING = Sampling(max_new_tokens=24)
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
PART = re.compile(r"tokenmillPart\((.*)\);\n")
DATA = re.compile(r'<script type="text/plain" id="talk-data">(.*?)</script>', re.DOTALL)


def pages_of(root: Path, *beside: str) -> Pages:
    """The pages of a project and of folders beside it."""
    examples = [{"kind": "user", "prompt": "hello", "greedy": {}}]
    models = Models(root, [root.parent / name for name in beside])
    return Pages(models, SAMPLING, examples)


def data_of(page: str) -> dict[str, Any]:
    """What a page knows."""
    found = DATA.search(page)
    assert found
    return json.loads(found[1])


def epochs_of(page: str) -> dict[str, str]:
    """The parts that describe the epochs on a page, by the names of these."""
    models = data_of(page)["models"]
    return {epoch["name"]: epoch["part"] for model in models for epoch in model["epochs"]}


def content(script: str | None) -> tuple[str | None, str]:
    """The text that a script hands to its page, and what it says is wrong."""
    assert script
    found = PART.fullmatch(script)
    assert found
    _, text, *problem = json.loads(f"[{found[1]}]")
    return text, "".join(problem)


@dataclass(frozen=True)
class Served:
    """A demo that runs."""

    url: str
    pages: Pages | None = None
    """None in a process of its own."""
    process: "subprocess.Popen[str] | None" = None

    def get(self, path: str = "/") -> str:
        """What a page of this server gets."""
        with NO_PROXY.open(self.url + path, timeout=60) as answer:
            return answer.read().decode()

    def ask(
        self,
        path: str,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        method: str | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """The status, the headers and the content of an answer to any request."""
        where = urlsplit(self.url)
        connection = HTTPConnection(where.hostname or "", where.port, timeout=60)
        with contextlib.closing(connection):
            method = method or ("GET" if body is None else "POST")
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()


@contextlib.contextmanager
def served_by_a_thread(pages: Pages, *names: str) -> Iterator[Served]:
    """Serve until the end of the `with`."""
    listener = server.bound("127.0.0.1", 0)
    with server.Server(pages, listener, names) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield Served(server.url(listener), pages)
        finally:
            running.shutdown()
            thread.join()


@contextlib.contextmanager
def served_by_a_process(root: Path, *arguments: str) -> Iterator[Served]:
    """Run `tokenmill demo` in `root` until the end of the `with`."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "tokenmill", "demo", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command,
        cwd=root,
        env=os.environ | {"PYTHONPATH": path},
        stdout=pipe,
        stderr=pipe,
        text=True,
    ) as process:
        try:
            assert process.stdout
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found
            yield Served(found[0], process=process)
        finally:
            process.terminate()
