"""A process that has imported everything and forks trainers: about 40 of them start in the time of
two imports.

As a program it reads one JSON object per line, the arguments of tests/training/alone.py, and
answers with a process id. Each trainer is a process of its own, forked before PyTorch has started a
thread, and ends as the stage `train` does.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Self

import torch.distributed as dist

from tests import forks
from tests.imports import ROOT


class ForkServer:
    """The server as the tests see it; it lives as long as the `with` block."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.training.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, root: Path, tokens: Path, **arguments: Any) -> "Trainer":
        """Fork a trainer with its checkpoints in `root/.resume` and its output in `root/model`."""
        root.mkdir(exist_ok=True)
        return Trainer(
            self, root, self._ask({"root": str(root), "tokens": str(tokens)} | arguments)
        )

    def together(
        self,
        root: Path,
        tokens: Path,
        /,
        size: int = 2,
        others: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> "list[Trainer]":
        """Fork trainers that train together, as torchrun would start them; the first one is the
        main process, and all but that one have the arguments `others`, too."""
        root.mkdir(exist_ok=True)
        meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # pyright: ignore[reportPrivateImportUsage]
        shared = {
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(meeting.port),
        }
        shared["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        trainers = [
            self.member(
                root,
                tokens,
                shared | {"RANK": str(rank)},
                **(arguments | (others or {} if rank else {})),
            )
            for rank in range(size)
        ]
        trainers[0].meeting = meeting
        return trainers

    def member(
        self, root: Path, tokens: Path, environ: dict[str, str], /, **arguments: Any
    ) -> "Trainer":
        """Fork one of several trainers, with the variables that torchrun gives it."""
        request = {"root": str(root), "tokens": str(tokens), "environ": environ} | arguments
        return Trainer(self, root, self._ask(request), said=f"said-{environ['RANK']}.txt")

    def wait(self, pid: int) -> int:
        """The exit code of a trainer, or minus the signal that ended it."""
        return self._ask({"wait": pid})


class Trainer:
    """A training in a process of its own."""

    meeting: object = None
    """Where the processes find each other; it lives as long as this."""

    def __init__(self, server: ForkServer, root: Path, pid: int, *, said: str = "said.txt"):
        self.server = server
        self.root = root
        self.pid = pid
        self._said = said

    @property
    def said(self) -> str:
        return (self.root / self._said).read_text()

    def until(self, ready: Callable[[], bool]) -> None:
        """Wait for something that the trainer does."""
        end = time.monotonic() + 300
        while not ready():
            assert time.monotonic() < end, self.said
            time.sleep(0.002)

    def stop(self, number: signal.Signals) -> int:
        os.kill(self.pid, number)
        return self.wait()

    def wait(self) -> int:
        return self.server.wait(self.pid)

    def checkpoints(self) -> list[Path]:
        return sorted(self.root.glob(".resume/*/step-*"))


def serve() -> None:
    """Fork and wait, as asked."""
    # What training imports later, so that it is imported once
    import dvc.repo  # noqa: F401, PLC0415
    import pandas as pd  # noqa: F401, PLC0415
    import torch._dynamo  # noqa: PLC0415
    import torch.distributed.elastic.multiprocessing  # noqa: PLC0415

    from tests.training import alone  # noqa: PLC0415

    def become_trainer(request: dict[str, Any]) -> NoReturn:
        os.environ.update(request.pop("environ", {}))
        said = f"said-{os.environ['RANK']}.txt" if "RANK" in os.environ else "said.txt"
        os.dup2(os.open(Path(request["root"], said), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        sys.orig_argv = [sys.executable, "-m", "tests.training.alone", json.dumps(request)]
        forks.become(lambda: alone.main(request))

    forks.ready()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            if request.get("compiled_as_on_a_gpu"):
                import torch._inductor.compile_fx  # noqa: F401, PLC0415 (once for all of them)
            if not (answer := os.fork()):
                os.close(1)
                become_trainer(request)
        print(answer, flush=True)


if __name__ == "__main__":
    serve()
