"""Floating-point operations of training, and the share of a device's peak that they make.

Chowdhery et al. 2022 (PaLM), appendix B: a token costs 6 operations for every parameter that it is multiplied with
(2 forward, 4 backward) and 12 x layers x width x context for attention, counted as if it were not causal. Looking an
embedding up multiplies nothing, so embeddings that are no head are not counted: the figure is lower than where all
parameters are. What the optimizer and recomputed activations cost is not the model's and not counted either.
"""

import torch

from tokenmill.model.build import skeleton
from tokenmill.model.config import ModelConfig
from tokenmill.training.hardware import hardware_of


def matmul_parameters(config: ModelConfig) -> int:
    """Parameters that every token is multiplied with: all but the embeddings of tokens and positions."""
    model = skeleton(config)
    embeddings = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    return sum(p.numel() for p in model.parameters()) - sum(e.weight.numel() for e in embeddings)


def flops_per_token(config: ModelConfig) -> int:
    """Floating-point operations that training on one token costs: forward and backward, without the update."""
    attention = 12 * config.n_layer * config.n_embd * config.context_length
    return 6 * matmul_parameters(config) + attention


def peak_flops(device: torch.device) -> float | None:
    """Operations a second that the device could do in half precision at best, or None where it is not known."""
    if device.type != "cuda":
        return None
    known = hardware_of(torch.cuda.get_device_name(device))
    return known.teraflops * 1e12 if known else None
