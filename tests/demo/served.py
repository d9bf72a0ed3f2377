"""`tokenmill demo` in a process of its own, and questions to it over HTTP."""

import contextlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from tokenmill.demo.answering import FIELDS, QUESTION

ROOT = Path(__file__).resolve().parents[2]
SAMPLING = {
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 1,
    "repetition_penalty": 1,
    "max_new_tokens": 64,
    "seed": 0,
}
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Served:
    """A demo that runs."""

    process: "subprocess.Popen[str]"
    url: str
    log: Path

    def states(self, *asked: Any, **changes: Any) -> list[str]:
        """Every state of an answer, in order, as HTML."""
        with self.answer(*asked, **changes) as answer:
            lines = answer.read().decode().splitlines()
        return [
            json.loads(line.removeprefix("data: "))[0]
            for line in lines
            if line.startswith("data: [")
        ]

    @contextlib.contextmanager
    def answer(
        self, model: str, epoch: int | None, prompt: str, *, kind: str = QUESTION, **changes: Any
    ) -> Iterator[HTTPResponse]:
        """The answer in the left column, while it comes; leaving the `with` is leaving the page."""
        call = f"{self.url}/gradio_api/call/left"
        headers = {"content-type": "application/json"}
        body = json.dumps({"data": [model, epoch, prompt, kind, *values(changes)]}).encode()
        request = urllib.request.Request(call, data=body, headers=headers)  # noqa: S310 (our own server)
        with NO_PROXY.open(request, timeout=60) as accepted:
            event = json.load(accepted)["event_id"]
        with NO_PROXY.open(f"{call}/{event}", timeout=120) as answer:
            yield answer


def values(changes: dict[str, Any]) -> list[Any]:
    """The sampling in the page's order."""
    return [(SAMPLING | changes)[name] for name in FIELDS]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tokenmill", "demo", *arguments]


def environment() -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    }


@contextlib.contextmanager
def start(root: Path, *arguments: str) -> Iterator[Served]:
    """Run the demo in `root` until the end of the `with`."""
    log = root.parent / "demo.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command(*arguments),
            cwd=root,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found, log.read_text()
            yield Served(process, found[0], log)
        finally:
            process.terminate()


def words(state: str) -> str:
    """The answer in a state of the page's conversation."""
    found = re.search(r'<div class="words" dir="auto">(.*?)</div>', state, re.DOTALL)
    return unescape(found[1]) if found else ""
