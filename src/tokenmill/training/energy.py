"""Joules that a device says it has taken, by its own counter; None where it does not say. Nothing is estimated.

NVIDIA GPUs since Volta count millijoules (NVML's `nvmlDeviceGetTotalEnergyConsumption`); Linux shows what a CPU package
counts (RAPL) under /sys/class/powercap, where permitted: that is all work of the package, not of this process alone.
"""

import ctypes
from pathlib import Path

import torch

from tokenmill.training.cost import Joules

POWERCAP = Path("/sys/class/powercap")


def energy_counter(device: torch.device) -> Joules:
    """The counter of a device."""
    if device.type == "cuda":
        return _nvml(str(torch.cuda.get_device_properties(device).uuid))
    return rapl(POWERCAP) if device.type == "cpu" else unknown


def unknown() -> None:
    """The counter of a device that has none."""


def rapl(root: Path) -> Joules:
    """The sum over the CPU packages below `root`, each of which begins again at its own maximum."""
    packages = [_Package(folder) for folder in sorted(root.glob("intel-rapl:*")) if folder.name.count(":") == 1]

    def joules() -> float | None:
        try:
            return sum(package.joules() for package in packages) if packages else None
        except (OSError, ValueError):  # usually readable for root alone
            return None

    return joules


class _Package:
    """The counter of one CPU package."""

    def __init__(self, folder: Path):
        self._folder, self._last, self._turns = folder, 0, 0

    def joules(self) -> float:
        """Joules, made to grow also where the counter begins again."""
        now = int((self._folder / "energy_uj").read_text())
        if now < self._last:
            self._turns += int((self._folder / "max_energy_range_uj").read_text())
        self._last = now
        return (self._turns + now) / 1e6


def _nvml(uuid: str) -> Joules:
    """The counter of the GPU with this UUID."""
    try:
        library, handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        failed = library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
    except (OSError, AttributeError):
        return unknown
    if failed:
        return unknown

    def joules() -> float | None:
        millijoules = ctypes.c_ulonglong()
        failed = library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules))
        return None if failed else millijoules.value / 1e3

    return joules
