"""Settings shared by all tests."""

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# What a script starts in the background ignores Ctrl-C, and so would the processes that tests start
# to send them one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several test processes share the cores

HERE = Path(__file__).parent

# Until everything is imported: a fifth of the time of collecting tests went into garbage
gc.disable()

# A busy machine is no bug; and a gate that draws other examples each time would fail on somebody
# else's change.
settings.register_profile("gate", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("gate")


SECONDS = {
    "bench": 35,
    "core": 20,
    "cuda": 30,
    "data": 45,
    "demo": 35,
    "faults": 20,
    "runs": 35,
    "training": 120,
    "pipeline/test_experiments.py": 35,
    "pipeline/test_kill.py": 25,
    "pipeline/test_notebook.py": 20,
    "pipeline/test_repro.py": 15,
    "pipeline/test_sharing.py": 20,
    "pipeline/test_start.py": 15,
}
"""What the slow tests of a folder take, roughly, where it is more than 10; those of tests/pipeline
share little."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each process gets a share of the folders with slow tests, and begins with them; then come the
    others.

    A process that is done takes from the ends of the others: so what is expensive to make is made
    once, and no long one is left for the end. xdist gives each process a part of the list, all of
    the same length.
    """
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    slow: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.path in slow_files:
            slow.setdefault(_unit(item), []).append(item)
    shares = [list[str]() for _ in range(count)]
    loads = [0] * count
    for unit in sorted(slow, key=lambda unit: (-SECONDS.get(unit, 10), unit)):
        least = loads.index(min(loads))
        shares[least].append(unit)
        loads[least] += SECONDS.get(unit, 10)
    short = [item for item in items if item.path not in slow_files]
    left = len(items)
    items.clear()
    for number, share in enumerate(shares):
        first = [item for unit in share for item in slow[unit]]
        # What uses the same things comes next
        short.sort(key=lambda item: _unit(item) not in share)
        length = left // (count - number)
        room = max(0, length - len(first))
        items += first + short[:room]
        short = short[room:]
        left = left - length
    items += short


def pytest_collection_finish() -> None:
    """Everything is imported: none of it is garbage, now or at any later look."""
    gc.freeze()
    gc.enable()


def _unit(item: pytest.Item) -> str:
    """Who shares what is expensive: the tests of a folder, or of a file where a folder is too much
    for a process."""
    path = item.path.relative_to(HERE)
    return path.as_posix() if path.parts[0] == "pipeline" else path.parts[0]
