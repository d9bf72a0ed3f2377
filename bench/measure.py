"""Run one job in a process of its own and measure it from outside: time, processor seconds, peak memory.

The job says itself how long it took and how much memory its own process held (bench/jobs.py); seen from outside are
the processes that it starts.
"""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
EVERY = 0.1
"""Seconds between two looks at the processes."""


@dataclass(frozen=True)
class Run:
    """One run of one job."""

    seconds: float
    """Of the job itself: the interpreter and the imports not counted."""
    start_up: float
    """Seconds for interpreter, imports and what the job prepares."""
    cpu: float
    """Processor seconds of the whole process tree."""
    peak_mib: float
    """Highest resident memory, of the process or, where there are several, of their sum as seen every EVERY seconds."""
    facts: dict[str, Any]
    """What the job says about itself; `bytes`, or `missing` with the package that it needs."""


@dataclass
class Watch:
    """Looks at a process and its children from time to time."""

    process: psutil.Process
    peak: int = 0
    cpu: dict[int, float] = field(default_factory=dict)

    def look(self) -> None:
        """Add up what the processes hold now."""
        held = 0
        for one in [self.process, *self.process.children(recursive=True)]:
            try:
                held += one.memory_info().rss
                times = one.cpu_times()
            except psutil.Error:
                continue
            self.cpu[one.pid] = times.user + times.system
        self.peak = max(self.peak, held)

    def until(self, done: threading.Event) -> None:
        """Look until `done`."""
        while not done.wait(EVERY):
            try:
                self.look()
            except psutil.Error:
                return


def run(name: str, folder: Path) -> Run:
    """Run the job `name` in the project at `folder`.

    Raises:
        SystemExit: the job failed; shows what it said.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    command = [sys.executable, "-m", "bench.jobs", name, str(time.time())]
    done = threading.Event()
    with (
        (folder / "errors.txt").open("w+") as errors,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        watch = Watch(psutil.Process(process.pid))
        thread = threading.Thread(target=watch.until, args=(done,))
        thread.start()
        said = process.stdout.read()
        failed = process.wait()
        done.set()
        thread.join()
        if failed:
            errors.seek(0)
            sys.exit(f"error: {' '.join(command)} failed:\n{errors.read()[-4000:]}")
    facts = json.loads(said.splitlines()[-1])
    return Run(
        seconds=facts.pop("seconds", 0.0),
        start_up=facts.pop("start_up", 0.0),
        cpu=max(facts.pop("cpu", 0.0), sum(watch.cpu.values())),
        peak_mib=max(facts.pop("peak_mib", 0.0), watch.peak / 2**20),
        facts=facts,
    )
