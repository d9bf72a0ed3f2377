"""What a model costs in training before anything runs: floating-point operations and memory.

Operations follow Chowdhery et al. 2022 (PaLM), appendix B: each token costs 6 operations per
parameter that it is multiplied with (2 forward, 4 backward), and 12 x layers x width x context for
attention, as if it were not causal. Looking up an embedding multiplies nothing, so only the head's
embedding counts. With LoRA a parameter that stays costs 4, as it has no gradient, and one that
learns 4 as well, as the forward pass has the merged weights. The optimizer is not counted. Memory
follows from formulas of the code; tests compare both with PyTorch's counts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import is_hidden_matrix, model_class, outline, parameter_count
from tokenmill.model.ops import LOGITS_AT_A_TIME, MAX_PLAIN_LENGTH, rows_at_a_time, stream_dtype
from tokenmill.training.params import OPTIMIZERS, TrainParams
from tokenmill.training.schedule import Workload

USABLE_MEMORY = 0.9
"""The share of a GPU's memory that training can fill. The allocator and the libraries take the
rest."""

COMPILED_LOGIT_TENSORS = 3
"""Pieces of logits that code compiled for a GPU holds at the same time, in the precision of the
products: one, its gradient, and the next one. Inductor's plan says so (`tests/cuda/traffic.py`)."""


def matmul_parameters(config: ModelConfig) -> int:
    """Parameters of the matrices that multiply each token: all but embeddings, norms and biases."""
    model = outline(config)
    embeddings = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    return matrices - sum(e.weight.numel() for e in embeddings)


def flops_per_token(config: ModelConfig, *, learning: int | None = None) -> int:
    """Floating-point operations of training on one token: forward and backward pass, without the
    update.

    Args:
        config: the model.
        learning: the number of parameters that learn by LoRA; None if all those of the model do.
    """
    attention = 12 * config.n_layer * config.n_embd * config.context_length
    if learning is None:
        return 6 * matmul_parameters(config) + attention
    return 4 * (matmul_parameters(config) + learning) + attention


def step_flops(work: Workload) -> int:
    """Floating-point operations of a step, without the update; the last one of an epoch may take
    fewer."""
    return work.tokens_per_step * flops_per_token(work.config, learning=work.learning)


@dataclass(frozen=True)
class Memory:
    """Bytes on one device at the peak of a step."""

    weights: int
    """Float32 weights, with LoRA also those before it, and the copies that matrix products need."""
    gradients: int
    optimizer: int
    """What the optimizer keeps, and the average of weights."""
    activations: int
    logits: int
    """The logits that the loss holds at the same time, their gradient, and its intermediate
    results: in float32, or in the precision of the products in code compiled for a GPU."""

    @property
    def fixed(self) -> int:
        """Bytes that do not depend on the number of sequences."""
        return self.weights + self.gradients + self.optimizer

    @property
    def of_sequences(self) -> int:
        """Bytes that grow with the number of sequences."""
        return self.activations + self.logits

    @property
    def total(self) -> int:
        """The sum of all. The allocator and the libraries take some more."""
        return self.fixed + self.of_sequences


def memory(
    work: Workload,
    *,
    sequences: int,
    precision: torch.dtype,
    shards: int = 1,
    compiled: bool = False,
    on_cpu: bool = False,
) -> Memory:
    """The memory of one device in training.

    Args:
        work: the training, of which the length of the text does not matter.
        sequences: the number of sequences that go through the model at the same time.
        precision: the precision of matrix products.
        shards: the number of devices that share weights, gradients and optimizer state (FSDP).
        compiled: whether the model is compiled for a GPU, where the loss takes more at a time.
        on_cpu: whether the device is a CPU, which keeps all scores of attention of short sequences.
    """
    config = work.config
    model = outline(config)
    hidden = sum(p.numel() for name, p in model.named_parameters() if is_hidden_matrix(name, p))
    total = parameter_count(config)
    learning = work.learning or total
    # LoRA keeps the weight that a map had; here of all maps, whichever learn
    weights = total + hidden + learning if work.learning else total
    tokens = sequences * config.context_length
    kept = _numbers_kept(work.train, learning, hidden=0 if work.learning else hidden)
    extra = model_class(config.architecture).training_memory(config, precision)
    copies = extra.weight_copy_bytes
    if precision != torch.float32:
        copies += precision.itemsize * hidden
    block = extra.block_bytes + 16  # means and deviations
    if on_cpu and config.context_length <= MAX_PLAIN_LENGTH:
        block += _scores(config, precision) - extra.scores_spare_bytes
    else:
        block += 4 * config.n_head  # sums of exponentials
    if config.dropout:
        # The factors of two dropouts, in the precision of their inputs; a GPU keeps bytes instead
        block += 2 * stream_dtype(precision).itemsize * config.n_embd
    activations = tokens * (block * config.n_layer + extra.other_bytes)
    return Memory(
        weights=math.ceil(4 * weights / shards) + copies // shards,
        gradients=math.ceil(4 * learning / shards),
        optimizer=math.ceil(4 * kept / shards),
        activations=math.ceil(extra.compiled_share * activations) if compiled else activations,
        logits=_compiled_logits(tokens, config.vocab_size, precision)
        if compiled
        else min(tokens * config.vocab_size, LOGITS_AT_A_TIME) * 4 * extra.logit_tensors,
    )


def _scores(config: ModelConfig, precision: torch.dtype) -> int:
    """Bytes per token of what a block keeps of all scores: their softmax and, with dropout, its
    factors and the product of both."""
    tensors = 3 if config.dropout else 1
    return tensors * config.n_head * config.context_length * precision.itemsize


def _numbers_kept(train: TrainParams, learning: int, *, hidden: int) -> int:
    """The numbers that are kept for parameters that learn, of which `hidden` are in the matrices of
    blocks: moments, and the average."""
    fewer = 2 - OPTIMIZERS[train.optimizer].hidden_moments
    return (2 + train.averages) * learning - fewer * hidden


def _compiled_logits(tokens: int, vocabulary: int, precision: torch.dtype) -> int:
    """Bytes of the logits in code compiled for a GPU."""
    rows = min(tokens, rows_at_a_time(tokens, vocabulary, on_gpu=True, compiled=True))
    return COMPILED_LOGIT_TENSORS * rows * vocabulary * precision.itemsize


def sequences_within(at_most: int, room: float, need: Callable[..., Memory]) -> int:
    """The largest of `at_most`, its half, its quarter, … whose training takes at most `room` bytes
    of a device; 0 if that of a single sequence takes more.

    `need` is `memory` with all arguments but `sequences`.
    """
    sequences = at_most
    while sequences and need(sequences=sequences).total > room:
        sequences //= 2
    return sequences
