"""Run one job in a process of its own and measure it from outside: time, processor seconds, peak
memory.

The job reports its own time and memory (bench/data/jobs.py). The processes that it starts are
measured from outside.
"""

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.program import environment

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
    work_cpu: float
    """Processor seconds of the job itself, in its own process."""
    peak_mib: float
    """Highest resident memory, of the process or, where there are several, of their sum as seen
    every EVERY seconds."""
    private_mib: float
    """The same without what files in the page cache take, as seen every EVERY seconds."""
    facts: dict[str, Any]
    """What the job says about itself; `bytes`, or `missing` with the package that it needs."""


@dataclass
class Watch:
    """Looks at a process and its children from time to time."""

    process: psutil.Process
    peak: int = 0
    private: int = 0
    cpu: dict[int, float] = field(default_factory=dict)

    def look(self) -> None:
        """Add up what the processes hold now."""
        held = shared = 0
        for one in [self.process, *self.process.children(recursive=True)]:
            try:
                memory = one.memory_info()
                held += memory.rss
                shared += getattr(memory, "shared", 0)
                times = one.cpu_times()
            except psutil.Error:
                continue
            self.cpu[one.pid] = times.user + times.system
        self.peak = max(self.peak, held)
        self.private = max(self.private, held - shared)

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
    command = [sys.executable, "-m", "bench.data.jobs", name, str(time.time())]
    done = threading.Event()
    with (
        (folder / "errors.txt").open("w+") as errors,
        subprocess.Popen(
            command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=errors, text=True
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
        work_cpu=facts.pop("work_cpu", 0.0),
        peak_mib=max(facts.pop("peak_mib", 0.0), watch.peak / 2**20),
        private_mib=watch.private / 2**20,
        facts=facts,
    )
