"""Settings shared by all tests."""

import gc
import itertools
import os
import random
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.buckets import bucket
from tests.clusters import cluster
from tests.imports import ROOT
from tests.isolation import isolate
from tests.leftovers import pytest_sessionstart

__all__ = ["bucket", "cluster", "pytest_sessionstart"]

# What a script or `nohup` starts in the background ignores Ctrl-C or a closed terminal, and so
# would the processes that tests start to send them one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.platform != "win32":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

isolate()

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several test processes share the cores

# Where the environment keeps Python from writing byte code, each of some hundred processes would
# compile what it imports, and each worker all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

HERE = Path(__file__).parent

# Until everything is imported: a fifth of the time of collecting tests went into garbage
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Another order of the tests."""
    parser.addoption(
        "--seed", type=int, help="shuffle folders, files and the tests of each file by this number"
    )


def pytest_configure(config: pytest.Config) -> None:
    """The same examples of Hypothesis each time, for a gate that draws others would fail on
    somebody else's change; a seed draws others.

    A busy machine is no bug, so no example has a deadline.
    """
    settings.register_profile("gate", deadline=None, derandomize=config.getoption("seed") is None)
    settings.load_profile("gate")


@pytest.fixture(scope="session", autouse=True)
def code_of_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where `transformers` copies the code of an exported model, in place of the home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_MODULES_CACHE", str(tmp_path_factory.getbasetemp() / "modules"))
        yield


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder outside any repository."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def params(here: Path) -> Path:
    """A copy of params.yaml in an otherwise empty current folder."""
    return Path(shutil.copy(ROOT / "params.yaml", here))


@pytest.fixture(autouse=True)
def exact_products() -> Iterator[None]:
    """Products of float32 are exact in each test, whatever the one before configured: a processor
    with bfloat16 tiles (Intel AMX) rounds them where a training may.

    Afterwards, too, for the next test's fixtures of a wider scope come before this one.
    """
    _multiply_exactly()
    yield
    _multiply_exactly()


def _multiply_exactly() -> None:
    if torch := sys.modules.get("torch"):  # and is not loaded for this
        torch.set_float32_matmul_precision("highest")


def pytest_report_header(config: pytest.Config) -> str | None:
    """How to have this order again."""
    seed = config.getoption("seed")
    return None if seed is None else f"shuffled: make test SEED={seed}"


SECONDS = {
    "bench": 35,
    "core": 25,
    "cuda": 30,
    "data": 45,
    "demo": 35,
    "faults": 20,
    "runs": 35,
    "training": 120,
    "pipeline/test_experiments.py": 35,
    "pipeline/test_fetch.py": 15,
    "pipeline/test_finetuning.py": 20,
    "pipeline/test_kill.py": 25,
    "pipeline/test_notebook.py": 20,
    "pipeline/test_repro.py": 40,
    "pipeline/test_sharing.py": 20,
    "pipeline/test_stale_evaluation.py": 25,
}
"""What the slow tests of a folder take, roughly, where it is more than 10; the files of
tests/pipeline, where none is quick, share little. Trainings fork from a process of their own."""


@pytest.hookimpl(trylast=True)  # after `-m` has chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle by the seed, if there is one. Each process gets a share of the folders with slow
    tests, and begins with them; then come the others.

    A process that is done takes from the ends of the others: so what is expensive to make is made
    once, and no long one is left for the end. xdist gives each process a part of the list, all of
    the same length.
    """
    if (seed := config.getoption("seed")) is not None:
        _shuffle(items, seed)
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    slow_files = {
        item.path
        for item in items
        if item.get_closest_marker("slow")
        or item.path.parent.name == "pipeline"
        or _unit(item) == "training"
    }
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


BRINGS = re.compile(r"`(\w+ install|mkdir) ([^`]+)`")
"""What a reason to skip says would bring the thing that is missing."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line: what to type to run the tests that were skipped for want of something."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    wanted: dict[str, set[str]] = {}
    for command, what in itertools.chain.from_iterable(map(BRINGS.findall, skipped)):
        wanted.setdefault(command, set()).add(what)
    if wanted:
        count = sum(bool(BRINGS.search(reason)) for reason in skipped)
        commands = [f"{command} {' '.join(sorted(what))}" for command, what in wanted.items()]
        terminalreporter.write_line(
            f"tests skipped for want of this: {count}; to run them: {'; '.join(sorted(commands))}"
        )


def pytest_collection_finish() -> None:
    """Everything is imported: none of it is garbage, now or at any later look."""
    gc.freeze()
    gc.enable()


def _shuffle(items: list[pytest.Item], seed: int) -> None:
    """Shuffle folders, the files of each and the tests of each file."""
    draws = random.Random(seed)
    rank = {name: draws.random() for item in items for name in (item.path.parent, item.path)}
    draws.shuffle(items)
    items.sort(key=lambda item: (rank[item.path.parent], rank[item.path]))


def _unit(item: pytest.Item) -> str:
    """Who shares what is expensive: the tests of a folder, or of a file where a folder is too much
    for a process."""
    path = item.path.relative_to(HERE)
    return path.as_posix() if path.parts[0] == "pipeline" else path.parts[0]
