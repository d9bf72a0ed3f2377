"""The benchmark of a cluster: its links count and vanish, and its kills hit a stage at work."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bench.data import lab
from bench.data.nodes import Moment, Project
from bench.data.project import make_project
from bench.program import ROOT
from tokenmill.sample.generator import conversations

SENT = 3_000_000

TALK = f"""
import json, os, pathlib, subprocess, sys
from bench.data import lab

lab.bridge()
nodes = [lab.Node(None, lab.link(number, 1000)) for number in (1, 2)]
listen = (
    "import socket; server = socket.create_server(('{lab.SUBNET}.1', 7)); print(flush=True)\\n"
    "one, _ = server.accept(); print(sum(map(len, iter(lambda: one.recv(1 << 16), b''))))"
)
send = "import socket; socket.create_connection(('{lab.SUBNET}.1', 7)).sendall(bytes({SENT}))"
with subprocess.Popen(nodes[0].inside(sys.executable, "-c", listen), stdout=-1) as listener:
    listener.stdout.readline()
    subprocess.run(nodes[1].inside(sys.executable, "-c", send), check=True)
    arrived = int(listener.stdout.readline())
facts = arrived, *(node.traffic() for node in nodes), os.readlink("/proc/self/ns/pid")
pathlib.Path(sys.argv[1]).write_text(json.dumps(facts))
"""


def test_links_count_and_end_with_the_process(tmp_path: Path) -> None:
    said = tmp_path / "said.json"
    code = lab.in_namespaces(["-c", TALK, str(said)])
    if code is None:
        pytest.skip("this system allows no namespaces")
    assert code == 0
    arrived, (received, _), (_, left), namespace = json.loads(said.read_text())
    assert arrived == SENT
    assert SENT < received < 1.2 * SENT
    assert SENT < left < 1.2 * SENT
    for process in psutil.pids():
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            assert str(Path(f"/proc/{process}/ns/pid").readlink()) != namespace


def test_a_scratch_folder_goes_with_sigterm(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time; from bench.data.lab import scratch\n"
        "with scratch(pathlib.Path(sys.argv[1])) as folder:\n"
        "    (folder / 'file').touch(); print(flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout
        process.stdout.readline()
        assert len(list(tmp_path.glob("*/file"))) == 1
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_what_is_used_between_two_moments() -> None:
    run = Moment(1.0, 2.0, 3.0, (10, 20)).to(Moment(2.5, 2.25, 7.0, (110, 25)))
    assert (run.seconds, run.driver_cpu, run.nodes_cpu, run.received, run.sent) == (
        1.5,
        0.25,
        4.0,
        100,
        5,
    )
    assert Moment(1.0, 2.0, 3.0, None).to(Moment(2.0, 2.0, 3.0, None)).received is None


@pytest.mark.slow
def test_a_killed_stage_gives_the_same_bytes_when_it_runs_again(tmp_path: Path) -> None:
    raw = tmp_path / "raw.jsonl"
    texts = ("\n".join(map(" ".join, one)) for one in conversations(seed=0, count=300))
    raw.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    digests = []
    for name in ("whole", "killed"):
        make_project(tmp_path / name, raw, {"data": {"raw": str(raw)}})
        project = Project(tmp_path / name, ROOT, None)
        if name == "killed":
            assert project.run("clean", psutil.Process.kill) is None
            assert not (project.folder / "data/clean").exists()
        start = time.perf_counter()
        run = project.run("clean")
        assert run is not None
        assert 0 < run.seconds < time.perf_counter() - start
        digests.append(project.digest("clean"))
    assert digests[0] == digests[1]
    assert len(digests[0]) == 64
