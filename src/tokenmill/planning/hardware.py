"""GPUs as their data sheets have them: peak of matrix products in half precision, memory, links to neighbours.

Peaks are dense ones (without structured sparsity) with float32 accumulation, in 1e12 floating-point operations a
second, from NVIDIA's data sheets and architecture papers: T4 data sheet (65, float16); Tesla V100 data sheet, SXM2
(125, float16); L4 data sheet (242 with sparsity, so 121); A100 data sheet (312); H100 data sheet, SXM (1,979 with
sparsity) and PCIe (1,513 with sparsity); H200 data sheet (1,979 with sparsity); GA102 whitepaper, RTX 3090 (71); Ada
whitepaper, RTX 4090 (165.2). Links are one direction of NVLink where the card has it, else of PCI Express x16.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenmill.core.errors import UserError

if TYPE_CHECKING:
    import torch

UTILISATION = 0.4
"""Share of its peak that plans assume a GPU to reach."""


@dataclass(frozen=True)
class Hardware:
    """A GPU as its data sheet has it."""

    name: str
    pattern: str
    """Regular expression that PyTorch's name of the device matches."""
    teraflops: float
    """Peak of bfloat16 (T4 and V100: float16) matrix products, 1e12 operations a second."""
    memory_gb: float
    """1e9 bytes."""
    link_gb_per_second: float
    """To a neighbour in the same machine, one direction, 1e9 bytes a second."""

    @property
    def flops(self) -> float:
        """Peak operations per second."""
        return self.teraflops * 1e12


HARDWARE = [
    Hardware("T4", r"Tesla T4", 65, 16, 16),
    Hardware("V100", r"Tesla V100-SXM2.*", 125, 32, 150),
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
    """The GPUs of these names, or all for none.

    Raises:
        UserError: a name is not known.
    """
    known = {entry.name.lower(): entry for entry in HARDWARE}
    for name in names:
        if name.lower() not in known:
            raise UserError(
                f"--hardware {name} is not known; known are {', '.join(e.name for e in HARDWARE)}, and here."
            )
    return [known[name.lower()] for name in names] or HARDWARE


def hardware_of(device_name: str) -> Hardware | None:
    """The entry for PyTorch's name of a device, or None; a variant with other clocks is another device."""
    return next((entry for entry in HARDWARE if re.fullmatch(entry.pattern, device_name)), None)


def peak_flops(device: "torch.device") -> float | None:
    """Operations per second in half precision that a device can do at best, or None if that is not known."""
    import torch  # noqa: PLC0415 (the command line needs this module's table without PyTorch)

    if device.type != "cuda":
        return None
    known = hardware_of(torch.cuda.get_device_name(device))
    return known.flops if known else None
