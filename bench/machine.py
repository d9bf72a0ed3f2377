"""The machine on which a benchmark runs."""

import platform
from pathlib import Path


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
