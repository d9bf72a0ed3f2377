"""Triton compiles every kernel of a compiled training step, for cards that are not here.

    TRITON_DUMP_PTXAS_LOG=1 python -m tests.cuda.kernels FOLDER

Inductor writes the kernels of the forward pass, the backward pass and Muon's update of a layer of
GPT-2's width; AdamW's kernel is PyTorch's own. Triton compiles each to machine code by its own
`ptxas`. One JSON object is printed for each kernel: card, architecture, name, and for each of its
configurations the registers and the bytes that it spills to memory.
"""

# Imports follow statements here, for the device must be there before torch is imported.

import sys
from pathlib import Path

from tests.cuda import fake

if __name__ == "__main__":
    fake.load(Path(sys.argv[1]))

import contextlib
import io
import itertools
import json
import re
from types import SimpleNamespace
from unittest import mock

import torch
import triton  # type: ignore[import-not-found]
from torch._inductor.codecache import PyCodeCache
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.utils import Placeholder
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found]

from tests.cuda.traffic import H100, loss_of_ours, ours, passes, planning, update

ARCHITECTURES = ("gpt2", "modern")
LAYERS = 1
A100 = SimpleNamespace(
    **vars(H100)
    | {
        "name": "NVIDIA A100",
        "major": 8,
        "multi_processor_count": 108,
        "shared_memory_per_block_optin": 166_912,
    }
)
T4 = SimpleNamespace(
    **vars(H100)
    | {
        "name": "Tesla T4",
        "major": 7,
        "minor": 5,
        "multi_processor_count": 40,
        "max_threads_per_multi_processor": 1024,
        "shared_memory_per_block_optin": 65_536,
    }
)
CARDS = {
    "H100": (H100, torch.bfloat16, torch.bfloat16),
    "A100": (A100, torch.bfloat16, torch.bfloat16),
    "T4": (T4, torch.float16, torch.float32),
}
"""Each card with the precision of its products and that of Muon's."""

USED = re.compile(r"(\d+) bytes spill stores.*?Used (\d+) registers", re.DOTALL)
"""What ptxas says about a kernel."""


def sources(graph: GraphLowering) -> list[tuple[str, str]]:
    """Name and code of the kernels that Inductor writes for a graph."""
    graph.codegen()
    return [
        (
            name,
            code.replace(str(Placeholder.DESCRIPTIVE_NAME), name).replace(
                str(Placeholder.KERNEL_NAME), "triton_"
            ),
        )
        for code, name in graph.wrapper_code.src_to_kernel.items()
    ]


def compiled(code: str) -> list[dict[str, int]]:
    """Compile a kernel in all configurations among which Inductor would choose; those that equal an
    earlier kernel's are not compiled again."""
    log = io.StringIO()
    with (
        contextlib.redirect_stdout(log),
        mock.patch("torch._inductor.runtime.triton_helpers.set_driver_to_gpu"),
    ):
        PyCodeCache.load(code).triton_.precompile(warm_cache_only=True)
    return [
        {"registers": int(registers), "spilled": int(spilled)}
        for spilled, registers in USED.findall(log.getvalue())
    ]


def kernels_of(card: str, architecture: str) -> list[tuple[str, str]]:
    """Name and code of the kernels of a step on a card, with Muon's beside those of `modern`."""
    properties, products, muon = CARDS[card]
    torch._dynamo.reset()
    DeviceProperties.create.cache_clear()  # it remembers the card before
    target = GPUTarget("cuda", 10 * properties.major + properties.minor, properties.warp_size)
    triton.runtime.driver.set_active(SimpleNamespace(get_current_target=lambda: target))
    with planning(sources, properties) as kernels:
        passes(lambda: ours(architecture, LAYERS), loss_of_ours, products)
        if architecture == "modern":
            update(architecture, LAYERS, muon)
    return kernels


def main() -> None:
    """Compile all kernels for all cards; print a line for each."""
    for card, architecture in itertools.product(CARDS, ARCHITECTURES):
        for name, code in kernels_of(card, architecture):
            row = {"card": card, "architecture": architecture, "kernel": name}
            print(json.dumps(row | {"configurations": compiled(code)}), flush=True)


if __name__ == "__main__":
    main()
