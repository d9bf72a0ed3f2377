"""How waiting threads of PyTorch follow the load of the machine."""

import ctypes
import os
import subprocess
import sys
import threading
from unittest import mock

import pytest
import torch

from tests.imports import ROOT
from tokenmill import wait_policy
from tokenmill.executors.threads import own_cores
from tokenmill.wait_policy import BUSY, QUIET_LOOKS, IdleTeam, WaitPolicy

CORES = own_cores()

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems are left alone")
spins = pytest.mark.skipif(CORES < 2, reason="on one core no thread of OpenMP spins for long")

SPINNING = """
import ctypes, os, time, torch
from tokenmill.wait_policy import IdleTeam

def processor_seconds():
    began = time.process_time()
    for _ in range(100):
        torch.ones(torch.get_num_threads() << 16)
        time.sleep(0.002)
    return time.process_time() - began

team = lambda: IdleTeam(ctypes.CDLL(None).GOMP_parallel, size=len(os.sched_getaffinity(0)) + 1)
processor_seconds()
for _ in range(2):
    print(processor_seconds())
    sleeping = team()
    print(processor_seconds())
    sleeping.end()
"""

BESIDE_OTHERS = """
import threading, time, torch
from tokenmill.wait_policy import LOOK_SECONDS, adapt_wait_policy

print("imported", flush=True)
input()
adapt_wait_policy()
ended = time.monotonic() + 4 * LOOK_SECONDS
until = time.monotonic() + 60
while time.monotonic() < until:
    torch.ones(torch.get_num_threads() << 16)
    there = any(thread.name == "idle team" for thread in threading.enumerate())
    if there and time.monotonic() > ended:
        print("asleep early")
        break
"""


def started(code: str) -> "subprocess.Popen[str]":
    """Python code in a process whose threads wait as libgomp chooses; one for each core."""
    decided = (*wait_policy.DECIDED_BY_USER, "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in decided}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": str(CORES)},
        text=True,
    )


@on_linux
@spins
def test_threads_spin_until_there_is_an_idle_team_and_after_it():
    """This holds of the installed PyTorch, with the OpenMP that it brings."""
    with started(SPINNING) as process:
        spun, slept, again, slept_again = map(float, process.communicate()[0].split())
    assert max(slept, slept_again) < min(spun, again) / 2


@on_linux
def test_threads_sleep_early_beside_busy_processes():
    """They come when it has imported PyTorch, which takes several times as long beside them."""
    with started(BESIDE_OTHERS) as process:
        assert process.stdout
        assert process.stdout.readline() == "imported\n"
        busy = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * CORES)
        ]
        try:
            said = process.communicate("\n")[0]
        finally:
            for each in busy:
                each.kill()
                each.wait()
    assert said == "asleep early\n"


class Teams(list[str]):
    """Makes teams that only record what happens to them."""

    def make(self) -> mock.Mock:
        self.append("made")
        return mock.Mock(spec=IdleTeam, end=lambda: self.append("ended"))


@pytest.mark.parametrize(
    ("waited", "said"),
    [
        ([], ["made"]),
        ([BUSY], ["made", "ended"]),
        ([0.0] * 2 * QUIET_LOOKS, ["made", "ended"]),
        ([2 * BUSY] * 5, ["made"]),
        ([0.0, 2 * BUSY, 2 * BUSY], ["made", "ended", "made"]),
        ([2 * BUSY, *[BUSY] * (QUIET_LOOKS - 1)], ["made"]),
        ([2 * BUSY, *[BUSY] * QUIET_LOOKS], ["made", "ended"]),
        ([2 * BUSY, *[0.0] * (QUIET_LOOKS - 1), 2 * BUSY, 0.0], ["made"]),
        ([1.0, *[0.0] * 3 * QUIET_LOOKS, 1.0], ["made", "ended", "made"]),
    ],
    ids=["at first", "free", "quiet", "busy", "later", "not yet", "over", "again", "and again"],
)
def test_the_team_follows_the_load_slowly_back(waited: list[float], said: list[str]):
    teams = Teams()
    policy = WaitPolicy(teams.make)
    for part in waited:
        policy.decide(part)
    assert teams == said


@on_linux
@pytest.mark.parametrize(
    ("cores", "threads", "own", "size"),
    [
        (2, 2, {}, 2),
        (2, 1, {}, None),
        (3, 2, {}, 3),
        (16, 8, {}, 10),
        (16, 7, {}, None),
        (2, 8, {}, 2),
        (2, 2, {"GOMP_SPINCOUNT": "7"}, None),
        (2, 2, {"OMP_WAIT_POLICY": "passive"}, None),
    ],
)
def test_a_team_has_more_threads_than_cores_are_left(
    cores: int,
    threads: int,
    own: dict[str, str],
    size: int | None,
    monkeypatch: pytest.MonkeyPatch,
):
    sizes: list[int] = []
    followed = threading.Event()

    class Policy:
        def __init__(self, make_team: mock.Mock):
            sizes.append(make_team.keywords["size"])

        follow = followed.set

    for name in wait_policy.DECIDED_BY_USER:
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(wait_policy, "WaitPolicy", Policy)
    wait_policy.adapt_wait_policy.__wrapped__()
    assert sizes == ([size] if size else [])
    assert followed.wait(60 if size else 0) == bool(size)
    if size:
        assert threads + size - 1 > cores


@pytest.mark.parametrize("missing", ["the system", "OpenMP", "the kernel's numbers"])
def test_other_systems_are_left_alone(missing: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wait_policy, "WaitPolicy", made := mock.Mock())
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    for name in wait_policy.DECIDED_BY_USER:
        monkeypatch.delenv(name, raising=False)
    if missing == "the system":
        monkeypatch.setattr(sys, "platform", "darwin")
    elif missing == "OpenMP":
        monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    else:
        monkeypatch.setattr(wait_policy, "core_waits", dict)
    wait_policy.adapt_wait_policy.__wrapped__()
    assert not made.called
