"""The table of docs/scale.md, as `plan` computes it: `python -m bench.scale_table` prints it."""

from dataclasses import replace

import torch

from bench.harness import train_params
from bench.program import command_line
from tokenmill.hardware import known_hardware
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import parameter_count
from tokenmill.planning.fit import ENOUGH
from tokenmill.planning.plan import step_time
from tokenmill.training.schedule import Workload
from tokenmill.training.size import memory
from tokenmill.words.units import duration, size

MODELS = {"124M": (12, 12, 768), "355M": (24, 16, 1024), "1.5B": (48, 25, 1600)}
"""Layers, heads, width of GPT-2 (Radford et al. 2019, table 2), by the names they go by."""

# A step of half a million tokens, as Brown et al. 2020 (GPT-3, table 2.1) have it for these
# sizes
SEQUENCES = 512
CONTEXT = 1024
VOCABULARY = 50_257

GPU = known_hardware(["A100-80GB"])[0]

PER_MACHINE = 8
"""GPUs that reach each other by their own links; others through the machine's network."""

MACHINE_GB_PER_SECOND = 50
"""1e9 bytes a second between machines, one direction: 400 Gbit/s."""

SLOW_BANDWIDTH = 1.25e9
"""The same over 10 Gbit/s."""

PRICE_PER_HOUR = 2.0

COLUMNS = [
    "model",
    "parameters",
    "tokens",
    "GPUs",
    "sequences at a time",
    "memory of a GPU (DDP)",
    "with FSDP",
    "step",
    "training",
    "USD",
    "a GPU sends in a step",
    "which takes",
    "over 10 Gbit/s",
]


def main() -> None:
    """Print the table."""
    command_line(__doc__, figures=False).parse_args()
    print(table())


def table() -> str:
    """The table as Markdown."""
    rows = [
        COLUMNS,
        ["---"] * len(COLUMNS),
        *(_row(name, devices) for name in MODELS for devices in (1, 8, 64)),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _row(name: str, devices: int) -> list[str]:
    n_layer, n_head, n_embd = MODELS[name]
    config = ModelConfig(
        architecture="gpt2",
        n_layer=n_layer,
        n_head=n_head,
        n_embd=n_embd,
        context_length=CONTEXT,
        dropout=0.0,
        vocab_size=VOCABULARY,
    )
    parameters = parameter_count(config)
    train = train_params(optimizer="adamw", average_power=None, batch_size=SEQUENCES)
    tokens = ENOUGH * parameters
    work = Workload(config, train, round(tokens))
    sequences = SEQUENCES // devices
    while _memory(work, sequences, shards=1) > 0.9 * GPU.memory_gb * 1e9:
        sequences //= 2
    link = GPU.link_gb_per_second if devices <= PER_MACHINE else MACHINE_GB_PER_SECOND
    one = step_time(replace(GPU, link_gb_per_second=link), work, devices=devices)
    seconds = one.seconds * tokens / (SEQUENCES * CONTEXT)
    alone = devices == 1
    return [
        name,
        f"{parameters / 1e6:,.0f} M",
        f"{tokens / 1e9:.3g}e9",
        str(devices),
        str(sequences),
        size(_memory(work, sequences, shards=1)),
        "" if alone else size(_memory(work, sequences, shards=devices)),
        f"{one.compute_seconds:.2g} s",
        duration(seconds),
        f"{seconds / 3600 * PRICE_PER_HOUR * devices:,.0f}",
        "" if alone else size(one.network_bytes),
        "" if alone else f"{one.network_seconds * 1000:.0f} ms",
        f"{one.network_bytes / SLOW_BANDWIDTH:.2g} s" if devices > PER_MACHINE else "",
    ]


def _memory(work: Workload, sequences: int, *, shards: int) -> int:
    return memory(work, sequences=sequences, precision=torch.bfloat16, shards=shards).total


if __name__ == "__main__":
    main()
