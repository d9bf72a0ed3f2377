"""A Ray cluster on this machine whose nodes have one core each, and a network link of their own.

The benchmark runs itself again in namespaces of its own (`in_namespaces`). There every node has a
network namespace, which a link of limited speed joins to a bridge, and the link counts the bytes.
When the process that began there ends, however it ends, the kernel ends all others and takes the
links and the bridge away. Where a system allows no namespaces, the nodes are plain raylets at
127.0.0.1, whose links have no limit and count nothing.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", *(["--map-root-user"] if os.getuid() else [])),
    *("--net", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child"),
)

LIMIT = "root tbf rate {}mbit burst 256kb latency 100ms"
"""A link's speed, for `tc qdisc add dev NAME`."""

SUBNET = "10.213.0"

STORE_BYTES = 300_000_000
"""What a node's object store holds before it spills to disk."""

START_SECONDS = 120
END_SECONDS = 60

RAY = (sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--block")


def in_namespaces(arguments: Sequence[str]) -> int | None:
    """Run this Python with `arguments` in namespaces of its own, where it is root, and return its
    exit code; None where the system does not allow all that a `Cluster` needs there."""
    trial = f"ip link add a1 type veth peer name a2; tc qdisc add dev a1 {LIMIT.format(1)}"
    try:
        subprocess.run(
            [*NAMESPACES, "sh", "-ec", f"ip link add sw type bridge; {trial}"],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return subprocess.run([*NAMESPACES, sys.executable, *arguments], check=False).returncode


@contextlib.contextmanager
def scratch(place: Path | None = None) -> Iterator[Path]:
    """A folder that is removed at the end, also when SIGTERM ends this program."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(tempfile.mkdtemp(prefix="nodes-", dir=place))
    try:
        yield folder
    finally:
        end = time.monotonic() + END_SECONDS
        while folder.exists() and time.monotonic() < end:  # what was killed may still write
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Node:
    """A raylet and what belongs to it."""

    process: subprocess.Popen[bytes]
    """`ray start`, which ends with its raylet."""
    holder: subprocess.Popen[bytes] | None
    """A process that does nothing in the node's network namespace; None if it has none."""

    def inside(self, *command: str) -> list[str]:
        """The command line that runs `command` on this node."""
        if self.holder is None:
            return list(command)
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *command]

    def traffic(self) -> tuple[int, int] | None:
        """Bytes that came through the link and that left through it; None without a link."""
        if self.holder is None:
            return None
        lines = Path(f"/proc/{self.holder.pid}/net/dev").read_text().splitlines()
        (counts,) = [line.split()[1:] for line in lines if line.split()[0] == "eth0:"]
        return int(counts[0]), int(counts[8])

    def family(self) -> list[psutil.Process]:
        """The processes of this node, its workers included."""
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.process.pid)
            return [*first.children(recursive=True), first]
        return []

    def cpu(self) -> float:
        """Processor seconds of these processes so far, and of those among them that have ended."""
        total = 0.0
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])
        return total

    def kill(self) -> None:
        """Kill the raylet; the rest of the node then ends by itself."""
        family = self.family()
        for process in family:
            if process.name() == "raylet":
                process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        _end(family)

    def end(self) -> None:
        """End everything of this node."""
        _end(self.family())
        self.process.wait()
        if self.holder is not None:
            self.holder.kill()
            self.holder.wait()


def _end(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


class Cluster:
    """A head without cores, where the driver runs, and nodes of one core.

    Leaving the `with` block ends them.
    """

    def __init__(self, folder: Path, megabits: int | None):
        """Start the head.

        Args:
            folder: where Ray writes; its name must be short, for the sake of sockets.
            megabits: the speed of each link per second and direction; None: plain raylets.
        """
        self._folder = folder
        self.megabits = megabits
        self._started = 0
        self.nodes: list[Node] = []
        if megabits is not None:
            bridge()
        self.address = f"{self._host(1)}:{_free_port()}"
        port = self.address.rpartition(":")[2]
        self.head = self._start(
            *("--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false"),
            f"--temp-dir={folder}",
        )

    def grow(self, count: int) -> None:
        """Start nodes until there are `count`."""
        while len(self.nodes) < count:
            self.nodes.append(self._start(f"--address={self.address}", "--num-cpus=1"))

    def kill_one(self) -> None:
        """Kill the newest node."""
        self.nodes.pop().kill()

    def cpu(self) -> float:
        """Processor seconds of all living nodes so far, without the driver."""
        return sum(node.cpu() for node in [self.head, *self.nodes])

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        for node in [*self.nodes, self.head]:
            node.end()

    def _host(self, number: int) -> str:
        return "127.0.0.1" if self.megabits is None else f"{SUBNET}.{number}"

    def _start(self, *options: str) -> Node:
        """Start a node and wait until it belongs to the cluster."""
        self._started += 1
        holder = None if self.megabits is None else link(self._started, self.megabits)
        log = self._folder / f"{self._started}.log"
        command = [
            *(() if holder is None else ("nsenter", f"--net=/proc/{holder.pid}/ns/net")),
            *(*RAY, *options, f"--node-ip-address={self._host(self._started)}"),
            *(f"--object-store-memory={STORE_BYTES}", "--disable-usage-stats"),
        ]
        environment = {name: of for name, of in os.environ.items() if not name.startswith("RAY_")}
        # Otherwise workers wait for everything else that a busy machine does
        environment["RAY_worker_niceness"] = "0"
        with log.open("wb") as said:
            node = Node(
                subprocess.Popen(
                    command,
                    env=environment,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches this program, which ends the nodes
                ),
                holder,
            )
        end = time.monotonic() + START_SECONDS
        while "Ray runtime started" not in log.read_text():
            if node.process.poll() is not None or time.monotonic() > end:
                node.end()
                sys.exit(f"error: no node of Ray has started:\n{log.read_text()[-4000:]}")
            time.sleep(0.1)
        return node


def bridge() -> None:
    """Make the bridge that joins the links."""
    _ip("link add sw type bridge", "link set sw up", "link set lo up")


def link(number: int, megabits: int) -> subprocess.Popen[bytes]:
    """Make a network namespace with a link to the bridge; the process that holds it."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    ours = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{holder.pid}/ns/net").readlink() == ours:
        time.sleep(0.01)
    limit = LIMIT.format(megabits)
    _ip(f"link add v{number} type veth peer name eth0 netns {holder.pid}")
    _ip(f"link set v{number} master sw", f"link set v{number} up")
    subprocess.run(f"tc qdisc add dev v{number} {limit}".split(), check=True)
    enter = f"nsenter --net=/proc/{holder.pid}/ns/net"
    for command in (
        f"ip addr add {SUBNET}.{number}/24 dev eth0",
        "ip link set eth0 up",
        "ip link set lo up",
        "ip route add default dev eth0",  # Ray finds its own address by it
        f"tc qdisc add dev eth0 {limit}",
    ):
        subprocess.run(f"{enter} {command}".split(), check=True)
    return holder


def _ip(*commands: str) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
