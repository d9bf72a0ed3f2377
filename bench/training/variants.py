"""The steps of the ladder as code: one model and one text, trained as a plain script does it,
better and better.

Each variant is a function of the number of steps. What a machine cannot do, or only
emulates, is left out of its variant and of those above it; `left_out` says why.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.harness import Steps, compute_for, for_long_runs, here, tokenmill_steps, train_params
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import multiplies_bfloat16
from tokenmill.model.gpt import build
from tokenmill.model.gpt2 import Attention, Block
from tokenmill.model.sequences import Sequences
from tokenmill.training.compile import Compilation, missing_compiler

PLAIN = ("memory map", "RAM", "vectorised", "compiled", "mixed", "flash")

OURS = ("TokenMill, GPT-2", "TokenMill")

VARIANTS = (*PLAIN, *OURS)

Batch = Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Size:
    """Model, batch and length of the measurement."""

    n_layer: int
    n_head: int
    n_embd: int
    vocab_size: int
    context_length: int
    batch: int
    steps: int
    """In a turn."""
    compiled: bool = True
    """Whether a variant may compile."""

    def config(self, variant: str) -> ModelConfig:
        """The model of this size on a variant."""
        sizes = {
            k: getattr(self, k)
            for k in ("n_layer", "n_head", "n_embd", "vocab_size", "context_length")
        }
        architecture = "modern" if variant == "TokenMill" else "gpt2"
        return ModelConfig.model_validate({"architecture": architecture, "dropout": 0.0} | sizes)


FULL = Size(
    n_layer=12, n_head=12, n_embd=768, vocab_size=32_000, context_length=512, batch=64, steps=10
)

SMALL = Size(
    n_layer=4, n_head=4, n_embd=256, vocab_size=4096, context_length=128, batch=16, steps=2
)

TINY = Size(
    n_layer=1,
    n_head=2,
    n_embd=16,
    vocab_size=64,
    context_length=16,
    batch=4,
    steps=1,
    compiled=False,
)


def left_out(variant: str, device: torch.device) -> str | None:
    """Why a variant makes no sense on this device, or None."""
    if variant == "compiled" and (missing := missing_compiler(device)):
        return f"torch.compile needs {missing}, which is not there."
    if variant == "mixed" and not multiplies_bfloat16(device):
        return (
            "no instructions for products of bfloat16 (AVX512_BF16 or AMX on a CPU) here; "
            "emulated ones take many times as long as float32's. The variant above it stays in "
            "float32."
        )
    return None


def make(variant: str, size: Size, path: Path) -> Steps:
    """The steps of a variant, on the tokens in a file of unsigned 16-bit ids."""
    mapped = np.memmap(path, dtype="<u2", mode="r")
    ids = np.array(mapped)
    if variant in OURS:
        return tokenmill(variant, size, ids)
    if variant in ("memory map", "RAM"):
        return plain(size, loop(mapped if variant == "memory map" else ids, size))
    gains = [gain for gain in PLAIN[3 : PLAIN.index(variant) + 1] if not left_out(gain, here())]
    return plain(
        size,
        vectorised(ids, size),
        compiled=size.compiled and "compiled" in gains,
        mixed="mixed" in gains,
        flash="flash" in gains,
    )


def tokenmill(variant: str, size: Size, ids: np.ndarray) -> Steps:
    """TokenMill's own step with its choices for this machine; GPT-2 with AdamW as the others, or
    its default."""
    train = train_params(
        batch_size=size.batch,
        learning_rate=1e-4,
        optimizer="muon" if variant == "TokenMill" else "adamw",
    )
    compute = compute_for(train.precision)
    compilation = (
        for_long_runs(compute.device) if size.compiled else Compilation(on=False, why="asked for")
    )
    return tokenmill_steps(size.config(variant), train, compute, ids, compilation=compilation)


def plain(
    size: Size, batch: Batch, *, compiled: bool = False, mixed: bool = False, flash: bool = False
) -> Steps:
    """GPT-2 with AdamW as a plain script has it, with these gains and no other."""
    torch.set_float32_matmul_precision("highest")
    device = here()
    model = build(size.config("flash"), seed=0)
    for block in model.blocks:
        assert isinstance(block, Block)
        attention = ScriptAttention(block.attention, size.context_length, flash=flash)
        block.attention = attention  # type: ignore[assignment]
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    forward: Callable[[Tensor], Tensor] = torch.compile(model) if compiled else model

    def steps(count: int) -> None:
        for _ in range(count):
            inputs, targets = (ids.to(device) for ids in batch())
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed):
                logits = forward(inputs)
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()

    return steps


def loop(ids: np.ndarray, size: Size) -> Batch:
    """A batch a sequence at a time, a number at a time."""
    draws = np.random.default_rng(1)

    def batch() -> tuple[Tensor, Tensor]:
        inputs = []
        targets = []
        for start in draws.integers(len(ids) - size.context_length - 1, size=size.batch):
            sequence = [int(ids[start + offset]) for offset in range(size.context_length + 1)]
            inputs.append(sequence[:-1])
            targets.append(sequence[1:])
        return torch.tensor(inputs), torch.tensor(targets)

    return batch


def vectorised(ids: np.ndarray, size: Size) -> Batch:
    """A batch by one index."""
    tokens = torch.from_numpy(ids.astype(np.int32))
    draws = np.random.default_rng(1)
    sequences = Sequences(
        tokens.unfold(0, size.context_length + 1, size.context_length), device=torch.device("cpu")
    )
    return lambda: sequences.gather(draws.integers(sequences.count, size=size.batch))


class ScriptAttention(nn.Module):
    """A layer's attention as most scripts write it: all scores, a mask, a softmax; or PyTorch's
    flash attention."""

    def __init__(self, layer: Attention, context_length: int, *, flash: bool):
        super().__init__()
        self.layer = layer
        self.flash = flash
        self.register_buffer(
            "mask", torch.ones(context_length, context_length).tril().bool(), persistent=False
        )

    def forward(self, x_BTD: Tensor, cache: None = None, mask: None = None) -> Tensor:  # noqa: ARG002 (never given)
        """(B, T, D) -> (B, T, D)."""
        heads = self.layer.n_head
        length = x_BTD.shape[1]
        q, k, v = (
            h.unflatten(-1, (heads, -1)).transpose(1, 2)
            for h in self.layer.qkv(x_BTD).chunk(3, dim=-1)
        )
        if self.flash:
            y_BHTK = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
            scores = scores.masked_fill(~self.mask[:length, :length], -torch.inf)  # type: ignore[index]
            y_BHTK = scores.softmax(-1) @ v
        return self.layer.out(y_BHTK.transpose(1, 2).flatten(2))
