"""The machine on which a benchmark runs, and what this process took of its memory."""

import platform
from pathlib import Path

import psutil


def processor() -> str:
    """The processor's name where the system tells."""
    info = Path("/proc/cpuinfo")
    names = (
        [line for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return (
        names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()
    )


def peak_bytes() -> int:
    """The most resident memory that this process had; 0 where the system does not tell."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent held when it forked
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) << 10
    return getattr(psutil.Process().memory_info(), "peak_wset", 0)
