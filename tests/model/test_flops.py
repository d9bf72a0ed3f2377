"""Floating-point operations of a model, held against PyTorch's counter and a published model."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.training.tiny import CONTEXT, model_config
from tokenmill.model.build import build
from tokenmill.model.config import ModelConfig
from tokenmill.model.size import flops_per_token, matmul_parameters

GPT2_SMALL = ModelConfig(
    architecture="gpt2", n_layer=12, n_head=12, n_embd=768, context_length=512, dropout=0.0, vocab_size=32_000
)


@pytest.mark.parametrize("n_layer", [1, 3])
def test_matrix_products_are_counted_as_pytorch_counts_them(n_layer: int):
    """`modern` has no biases and norms without weights, so the parameters account for every product but attention's."""
    config = model_config(n_layer=n_layer)
    ids_BT = torch.zeros((2, CONTEXT), dtype=torch.long)
    model = build(config, seed=0)
    with FlopCounterMode(display=False) as counter:
        model(ids_BT).square().mean().backward()
    counted = counter.get_flop_counts()["Global"]
    products = sum(n for operation, n in counted.items() if "bmm" not in str(operation))  # those are attention's
    assert products == 6 * matmul_parameters(config) * ids_BT.numel()
    assert flops_per_token(config) == 6 * matmul_parameters(config) + 12 * n_layer * 16 * CONTEXT


def test_gpt2_small_costs_what_its_published_size_says():
    assert matmul_parameters(GPT2_SMALL) == 134_601_216 - 32_000 * 768 - 512 * 768
    assert flops_per_token(GPT2_SMALL) == 6 * 109_632_000 + 12 * 12 * 768 * 512
