"""The machine on which a benchmark runs, and what this process took of its memory."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = (
    "datatrove",
    "ftfy",
    "gigatoken",
    "polars",
    "spacy",
    "tiktoken",
    "tokenizers",
    "zstandard",
)
"""Whose versions the figures depend on."""


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


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "processor": processor(),
        "python": platform.python_version(),
        "packages": {name: installed for name in PACKAGES if (installed := version_of(name))},
    }


def version_of(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
