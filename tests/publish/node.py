"""The code of the published page under node."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenmill.formats.tokenizer import TextTokenizer
from tokenmill.publish.parts import tokenizer_part
from tokenmill.publish.talk import PAGE

FILES = ("tokenizer.js", "cleaning.js", "model.js", "writing.js")
DRIVER = Path(__file__).with_name("drive.js")

needs_node = pytest.mark.skipif(
    shutil.which("node") is None, reason="no node here; `apt install nodejs` brings it"
)


class Node:
    """A process of node that works on one task after the other."""

    def __init__(self, process: "subprocess.Popen[str]"):
        self._process = process

    def ask(self, task: str, **values: Any) -> Any:
        """Do one of the tasks of drive.js."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"task": task} | values) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def take(self, tokenizer: TextTokenizer) -> None:
        """Use this tokenizer from now on."""
        self.ask("tokenizer", **json.loads(tokenizer_part(tokenizer)))


@contextlib.contextmanager
def running() -> Iterator[Node]:
    """A process until the end of the `with`."""
    command = ["node", str(DRIVER), str(PAGE), *FILES]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8") as process:
        try:
            yield Node(process)
        finally:
            process.terminate()
