"""`clean` and `tokenize` on a Ray cluster of several nodes, on one machine: `python -m
bench.data.nodes`.

The text is made by bench/data/corpus.py from that at --text (default: the built-in sample). Each
run is a real stage in a process of its own, the driver; it runs on the head, which has no cores.
The nodes have one core each, and links of --megabits (bench/data/lab.py). The folder of the text
and of the project, which a cluster shares by NFS, is on the local disk, so its traffic is not
counted.

First come the bytes of both outputs: from threads, from one, two and four nodes, from nodes one of
which is killed when half of the shards are there, and from a driver that is killed then and started
again. Then come bytes through the driver's link, and its processor seconds. They count from the
moment at which the stage has connected to the cluster and begins to write, to the moment at which
the output is whole. Last, --repeat runs on two nodes are timed, alternating with an earlier version
at --peer.
"""

import argparse
import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench.data.corpus import write_corpus
from bench.data.lab import Cluster, in_namespaces, scratch
from bench.data.project import add_text_arguments, clean_text, make_project, read_text
from bench.machine import machine
from bench.program import ROOT, command_line, environment, verdict, write_figures
from tokenmill.core import paths
from tokenmill.stage import report_errors

OUTPUTS = {"clean": paths.CLEAN, "tokenize": paths.PACKED}

NODES = (1, 2, 4)

TIMED_NODES = 2

TRAFFIC_TARGET = 0.02
"""Of the text that passes through the driver's link at most, in each direction."""

CPU_TARGET = 1.0
"""Processor seconds of the driver for a gigabyte of text at most."""

CLEAN_SECONDS_TARGET = 9.4
"""For `clean` of 195 MB on two nodes at 200 Mbit/s. So long took the version that brought all text
to the driver, on another machine."""

LOOK_SECONDS = 0.005

NEAR_DUPLICATES = {"enabled": True, "threshold": 0.8, "permutations": 128, "ngram": 5}

TRAINING_BYTES = 4_000_000
"""Of the text from which the tokenizer is learned."""


@dataclass(frozen=True)
class Run:
    """One run of one stage."""

    seconds: float
    driver_cpu: float
    nodes_cpu: float
    received: int | None
    """Bytes that came through the driver's link; None where it counts nothing."""
    sent: int | None


@dataclass(frozen=True)
class Moment:
    """What has been used so far."""

    clock: float
    driver: float
    nodes: float
    traffic: tuple[int, int] | None

    def to(self, later: "Moment") -> Run:
        """What has been used in between."""
        received, sent = (
            (None, None)
            if self.traffic is None or later.traffic is None
            else (now - before for before, now in zip(self.traffic, later.traffic, strict=True))
        )
        return Run(
            later.clock - self.clock,
            later.driver - self.driver,
            later.nodes - self.nodes,
            received,
            sent,
        )


@dataclass(frozen=True)
class Project:
    """A folder in which stages run, with the code of a checkout, on a cluster or in threads."""

    folder: Path
    code: Path
    cluster: Cluster | None

    def run(
        self, stage: str, disturb: Callable[[psutil.Process], None] | None = None, shards: int = 0
    ) -> Run | None:
        """Run a stage; None if it was killed.

        Args:
            stage: its name.
            disturb: called with the driver once so many shards are there.
            shards: how many.
        """
        out = self.folder / OUTPUTS.get(stage, paths.TOKENIZER)
        begun = out.with_name(f".{out.name}.tmp")
        before = after = None
        log = self.folder / "said.txt"
        with log.open("wb") as said, self._popen(stage, said) as process:
            driver = psutil.Process(process.pid)
            while driver.status() != psutil.STATUS_ZOMBIE:
                if before is None and begun.exists():
                    before = self._moment(driver)
                if disturb and before and len(list(begun.glob("part-*"))) >= shards:
                    disturb(driver)
                    disturb = None
                if after is None and out.exists():
                    after = self._moment(driver)
                time.sleep(LOOK_SECONDS)
            after = after or self._moment(driver)
            failed = process.wait()
        if failed == -9:
            return None
        if failed or disturb:
            why = log.read_text()[-4000:] if failed else "it ended before it could be disturbed"
            sys.exit(f"error: the stage {stage} of {self.code} failed:\n{why}")
        return (before or after).to(after)

    def _popen(self, stage: str, said: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "stages", stage]
        return subprocess.Popen(
            self.cluster.head.inside(*command) if self.cluster else command,
            cwd=self.folder,
            env=environment(self.code),
            stdout=said,
            stderr=subprocess.STDOUT,
        )

    def _moment(self, driver: psutil.Process) -> Moment:
        cpu = driver.cpu_times()
        return Moment(
            time.perf_counter(),
            cpu.user + cpu.system,
            self.cluster.cpu() if self.cluster else 0.0,
            self.cluster.head.traffic() if self.cluster else None,
        )

    def digest(self, stage: str) -> str:
        """The SHA-256 of all files of a stage's output, with their names."""
        found = hashlib.sha256()
        for path in sorted((self.folder / OUTPUTS[stage]).iterdir()):
            found.update(f"{path.name} {path.stat().st_size}\n".encode())
            found.update(path.read_bytes())
        return found.hexdigest()


class Bench:
    """The runs on one text."""

    def __init__(self, folder: Path, options: argparse.Namespace, cluster: Cluster):
        """Make the text.

        Args:
            folder: where there is room.
            options: the command line.
            cluster: a head without nodes.
        """
        self._folder = folder
        self._near_duplicates = options.near_duplicates
        self._raw = folder / "raw/text.jsonl"
        self._cluster = cluster
        self._shards: dict[str, int] = {}
        clean_text(folder / "origin", options.text)
        source = read_text(folder / "origin", escaped=True)
        self.text = write_corpus(source, self._raw, options.megabytes * 1_000_000, "jsonl")

    def all(self, options: argparse.Namespace) -> dict[str, Any]:
        """All runs, and what they ran on."""
        load = [os.getloadavg()]
        self._learn(ROOT)
        runs = [self._both("threads", None)]
        turns = list[dict[str, Any]]()
        for nodes in NODES:
            self._cluster.grow(nodes)
            runs.append(self._both(f"nodes: {nodes}", self._cluster))
            if nodes == TIMED_NODES:
                turns = self._turns(options)
        runs.append(self._both("driver killed", self._cluster, psutil.Process.kill))
        runs.append(self._both("node killed", self._cluster, lambda _: self._cluster.kill_one()))
        load.append(os.getloadavg())
        return {
            "text": dataclasses.asdict(self.text),
            "machine": machine(),
            "megabits": self._cluster.megabits,
            "near_duplicates": self._near_duplicates,
            "load": load,
            "runs": runs,
            "turns": turns,
        }

    def _turns(self, options: argparse.Namespace) -> list[dict[str, Any]]:
        """Alternating runs of this version and of the peer."""
        codes = {"TokenMill": ROOT}
        if options.peer:
            codes["peer"] = options.peer.resolve()
            self._learn(codes["peer"])
        return [
            self._both(name, self._cluster, code=code)
            for _ in range(options.repeat)
            for name, code in codes.items()
        ]

    def _learn(self, code: Path) -> None:
        """Learn the tokenizer of a checkout, once for all of its runs."""
        project = self._project(None, code)
        project.run("clean")
        project.run("tokenizer")
        (project.folder / paths.TOKENIZER.parent).replace(self._tokenizer(code))
        shutil.rmtree(project.folder)

    def _tokenizer(self, code: Path) -> Path:
        return self._folder / f"tokenizer-{hashlib.sha256(bytes(code)).hexdigest()[:8]}"

    def _project(self, cluster: Cluster | None, code: Path) -> Project:
        engine = {"data_engine": "ray", "ray_address": cluster.address} if cluster else {}
        changes = {
            "clean": {"near_duplicates": NEAR_DUPLICATES} if self._near_duplicates else {},
            "runtime": engine,
            "tokenizer": {"sample_bytes": TRAINING_BYTES},
        }
        folder = self._folder / "project"
        make_project(folder, self._raw, changes, code)
        return Project(folder, code, cluster)

    def _both(
        self,
        name: str,
        cluster: Cluster | None,
        disturb: Callable[[psutil.Process], None] | None = None,
        code: Path = ROOT,
    ) -> dict[str, Any]:
        """Run both stages in a new project; a row of figures."""
        project = self._project(cluster, code)
        shutil.copytree(self._tokenizer(code), project.folder / paths.TOKENIZER.parent)
        row: dict[str, Any] = {"name": name}
        for stage, out in OUTPUTS.items():
            row["nodes"] = len(cluster.nodes) if cluster else 0
            run = project.run(stage, disturb, self._shards.get(stage, 0) // 2)
            started_again = run is None
            run = run or project.run(stage)
            assert run is not None
            row[stage] = dataclasses.asdict(run) | {
                "started_again": started_again,
                "sha256": project.digest(stage),
            }
            self._shards.setdefault(stage, len(list((project.folder / out).glob("part-*"))))
        shutil.rmtree(project.folder)
        print(f"{name}: done", file=sys.stderr)
        return row


def print_all(figures: dict[str, Any]) -> None:
    """All tables."""
    text = figures["text"]["text_bytes"]
    links = f"{figures['megabits']} Mbit/s" if figures["megabits"] else "no limit, none counted"
    print(
        f"{text / 1e6:,.0f} MB of text; {figures['machine']['cores']} cores, "
        f"{figures['machine']['processor']}; links: {links}; load before "
        f"{figures['load'][0][0]:.1f}, after {figures['load'][1][0]:.1f}"
    )
    _print_bytes(figures["runs"])
    _print_traffic(figures["runs"], text)
    if figures["turns"]:
        _print_turns(figures["turns"])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print()
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(row)} |")


def _print_bytes(runs: list[dict[str, Any]]) -> None:
    first = runs[0]
    rows = [
        [
            run["name"],
            *(run[stage]["sha256"][:16] for stage in OUTPUTS),
            "yes" if all(run[one]["sha256"] == first[one]["sha256"] for one in OUTPUTS) else "NO",
        ]
        for run in runs
    ]
    _table(["run", *(f"{OUTPUTS[stage]}, SHA-256" for stage in OUTPUTS), "same bytes"], rows)


def _print_traffic(runs: list[dict[str, Any]], text: int) -> None:
    rows = []
    for run in runs:
        for stage in OUTPUTS if run["name"].startswith("nodes") else ():
            found = run[stage]
            shares = [found[way] and found[way] / text for way in ("received", "sent")]
            cpu = found["driver_cpu"] / text * 1e9
            met = cpu <= CPU_TARGET and all((share or 0) <= TRAFFIC_TARGET for share in shares)
            rows.append(
                [
                    *(stage, str(run["nodes"])),
                    *("not counted" if share is None else f"{share:.2%}" for share in shares),
                    *(f"{cpu:.2f}", verdict(met)),
                ]
            )
    marks = f"mark {TRAFFIC_TARGET:.0%}, {CPU_TARGET:g} s"
    _table(["stage", "nodes", "to the driver", "from it", "its CPU s a GB", marks], rows)


def _print_turns(turns: list[dict[str, Any]]) -> None:
    rows = []
    for name in dict.fromkeys(run["name"] for run in turns):
        mine = [run for run in turns if run["name"] == name]
        for stage in OUTPUTS:
            found = [run[stage] for run in mine]
            seconds = median(one["seconds"] for one in found)
            target = stage == "clean" and name == "TokenMill"
            rows.append(
                [
                    *(name, stage, f"{seconds:.1f}"),
                    " ".join(f"{one['seconds']:.1f}" for one in found),
                    f"{median(one['nodes_cpu'] for one in found):.1f}",
                    f"{median(one['driver_cpu'] for one in found):.2f}",
                    *(_megabytes([one[way] for one in found]) for way in ("received", "sent")),
                    verdict(seconds < CLEAN_SECONDS_TARGET) if target else "",
                ]
            )
    head = ["version", "stage", "seconds", "each", "nodes, CPU s", "driver, CPU s"]
    marks = ["to it, MB", "from it, MB", f"mark {CLEAN_SECONDS_TARGET} s"]
    _table([*head, *marks], rows)


def _megabytes(counts: Sequence[int | None]) -> str:
    counted = [count for count in counts if count is not None]
    return f"{median(counted) / 1e6:.1f}" if counted else "not counted"


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = command_line(__doc__)
    add_text_arguments(parser)
    parser.add_argument("--megabytes", type=int, default=195, help="of text (195)")
    parser.add_argument("--megabits", type=int, default=200, help="a second, of each link (200)")
    parser.add_argument("--repeat", type=int, default=3, help="timed runs on two nodes (3)")
    parser.add_argument("--peer", type=Path, help="a checkout of an earlier version to compare")
    parser.add_argument(
        "--near-duplicates", action="store_true", help="`clean` finds near-duplicates, too"
    )
    parser.add_argument("--inside", type=Path, nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(folder: Path, ray: Path, options: argparse.Namespace, megabits: int | None) -> None:
    """Do all runs, and print them."""
    with Cluster(ray, megabits) as cluster:
        figures = Bench(folder, options, cluster).all(options)
    print_all(figures)
    write_figures(options.json, figures)


def main() -> None:
    """Do what the command line says."""
    report_errors(lambda: run(parsed()))


def run(options: argparse.Namespace) -> None:
    """Run everything in namespaces, or without where the system allows none."""
    if options.inside:
        folder, ray = options.inside
        measure(folder, ray, options, options.megabits)
        return
    # Sockets need a short name
    with scratch(options.scratch) as folder, scratch(Path("/tmp")) as ray:  # noqa: S108
        command = ["-m", "bench.data.nodes", *sys.argv[1:], "--inside", str(folder), str(ray)]
        code = in_namespaces(command)
        if code is None:
            print("no namespaces on this system: plain raylets, whose links have no limit")
            measure(folder, ray, options, None)
        sys.exit(code)


if __name__ == "__main__":
    main()
