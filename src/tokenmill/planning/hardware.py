"""What is known of some GPUs: peak of matrix products in half precision, memory, links between neighbours.

Peaks are dense ones (without structured sparsity) with float32 accumulation, in 1e12 floating-point operations a
second, from NVIDIA's data sheets and architecture papers: T4 data sheet (65, float16); Tesla V100 data sheet, SXM2
(125, float16); L4 data sheet (242 with sparsity, so 121); A100 data sheet (312); H100 data sheet, SXM (1,979 with
sparsity) and PCIe (1,513 with sparsity); H200 data sheet (1,979 with sparsity); GA102 whitepaper, RTX 3090 (71); Ada
whitepaper, RTX 4090 (165.2). Links are one direction of NVLink where the card has it, else of PCI Express x16.

Floating-point operations of training, and the share of a device's peak that they make.

Chowdhery et al. 2022 (PaLM), appendix B: a token costs 6 operations for every parameter that it is multiplied with
(2 forward, 4 backward) and 12 x layers x width x context for attention, counted as if it were not causal. Looking an
embedding up multiplies nothing, so embeddings that are no head are not counted: the figure is lower than where all
parameters are. What the optimizer and recomputed activations cost is not the model's and not counted either.
"""

import re
from dataclasses import dataclass

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


def hardware_of(device_name: str) -> Hardware | None:
    """The entry for a device that PyTorch calls so, or None; variants with other clocks are not taken for it."""
    return next((entry for entry in HARDWARE if re.fullmatch(entry.pattern, device_name)), None)


def peak_flops(device: torch.device) -> float | None:
    """Operations a second that the device could do in half precision at best, or None where it is not known."""
    if device.type != "cuda":
        return None
    known = hardware_of(torch.cuda.get_device_name(device))
    return known.teraflops * 1e12 if known else None
