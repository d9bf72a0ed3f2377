"""The known GPUs, by their data sheets.

Peaks are dense ones (without structured sparsity) with float32 accumulation, in 1e12 floating-point
operations a second, from NVIDIA's data sheets and architecture papers: T4 data sheet (65 in float16
and 8.1 in float32); Tesla V100 data sheet, SXM2 (125 in float16 and 15.7 in float32); L4 data sheet
(242 with sparsity, so 121); A100 data sheet (312); H100 data sheet, SXM (1,979 with sparsity) and
PCIe (1,513 with sparsity); H200 data sheet (1,979 with sparsity); GA102 whitepaper, RTX 3090 (71);
Ada whitepaper, RTX 4090 (165.2). Links are one direction of NVLink on boards that are made for it
(SXM), else of PCI Express x16; bridges between two cards are not counted.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tokenmill.core.errors import UserError


@dataclass(frozen=True)
class Hardware:
    """A GPU with the figures of its data sheet."""

    name: str
    pattern: str
    """A regular expression that matches PyTorch's name of the device."""
    teraflops: float
    """The peak of bfloat16 (T4 and V100: float16) matrix products, in 1e12 operations a second."""
    memory_gb: float
    """The device's memory in 1e9 bytes."""
    link_gb_per_second: float
    """The bandwidth to a neighbour in the same machine, one direction, in 1e9 bytes a second."""
    float32_teraflops: float | None = None
    """The peak of float32 products, of a card without bfloat16: Muon's are float32 there, because
    float16 is too narrow for them. None: the card multiplies bfloat16."""

    @property
    def flops(self) -> float:
        """Peak operations per second."""
        return self.teraflops * 1e12

    @property
    def update_flops(self) -> float:
        """Peak operations per second of an optimizer's products."""
        return (self.float32_teraflops or self.teraflops) * 1e12


HARDWARE = [
    Hardware("T4", r"Tesla T4", 65, 16, 16, float32_teraflops=8.1),
    Hardware("V100", r"Tesla V100-SXM2.*", 125, 32, 150, float32_teraflops=15.7),
    Hardware("L4", r"NVIDIA L4", 121, 24, 32),
    Hardware("RTX3090", r"NVIDIA GeForce RTX 3090", 71, 24, 32),
    Hardware("RTX4090", r"NVIDIA GeForce RTX 4090", 165.2, 24, 32),
    Hardware("A100", r"NVIDIA A100.*", 312, 40, 300),
    Hardware("A100-80GB", r"NVIDIA A100.*80GB", 312, 80, 300),
    Hardware("H100-PCIe", r"NVIDIA H100 PCIe", 756.5, 80, 64),
    Hardware("H100", r"NVIDIA H100 80GB HBM3", 989.5, 80, 450),
    Hardware("H200", r"NVIDIA H200", 989.5, 141, 450),
]


def known_hardware(names: Sequence[str]) -> Sequence[Hardware]:
    """The GPUs of these names; all GPUs if there are no names."""
    known = {entry.name.lower(): entry for entry in HARDWARE}
    for name in names:
        if name.lower() not in known:
            raise UserError(
                f"--hardware {name} is not known; known are "
                f"{', '.join(e.name for e in HARDWARE)}, and here."
            )
    return [known[name.lower()] for name in names] or HARDWARE


def peak_flops(device: torch.device) -> float | None:
    """The peak of a GPU of the table in half precision, in operations per second; None for any
    other device.

    A variant with other clocks is another device.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return next((gpu.flops for gpu in HARDWARE if re.fullmatch(gpu.pattern, name)), None)
