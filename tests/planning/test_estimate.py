"""The calculator against what PyTorch keeps, counts and sends."""

from typing import Any

import pytest

from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import parameter_count
from tokenmill.model.size import flops_per_token
from tokenmill.planning.estimate import balance, network_bytes, optimizer_flops, step, suitable_parameters

SHAPE: dict[str, Any] = {"n_head": 4, "n_embd": 64, "context_length": 48, "dropout": 0.0, "vocab_size": 101}


def config_of(architecture: str, **changes: Any) -> ModelConfig:
    return ModelConfig.model_validate(SHAPE | {"architecture": architecture, "n_layer": 3} | changes)


def test_gpt2_small_at_a_tenth_of_a_second_on_an_a100():
    """134,601,216 parameters, 64 x 512 tokens: three quarters of the 312e12 operations a second that an A100 can do."""
    config = config_of("gpt2", n_layer=12, n_head=12, n_embd=768, context_length=512, vocab_size=32_000)
    assert parameter_count(config) == 134_601_216
    assert 64 * 512 * flops_per_token(config) / 0.1 / 312e12 == pytest.approx(0.75, abs=0.005)


def test_muon_costs_what_its_products_are():
    """Four times, for each matrix: X Xt, its square, and their product with X (2 operations a term)."""
    config = config_of("modern", n_layer=1)
    square, wide = 2 * 64**3 * 3, 2 * 64 * 64 * 256 * 2 + 2 * 64**3
    assert optimizer_flops(config, "muon") == 4 * (4 * square + 2 * wide)
    assert optimizer_flops(config, "adamw") == 0


def test_a_fast_network_hides_and_a_slow_one_costs():
    config = config_of("gpt2")
    common: dict[str, Any] = {"tokens": 1e6, "optimizer": "adamw", "rate": 1e12, "precision": "half"}
    alone = step(config, devices=1, parallel="ddp", bandwidth=1.0, **common)
    assert alone.network_bytes == 0
    assert alone.seconds == alone.compute_seconds == 1e6 * flops_per_token(config) / 1e12
    fast = step(config, devices=8, parallel="ddp", bandwidth=1e12, **common)
    assert fast.seconds == pytest.approx(alone.seconds / 8)
    slow = step(config, devices=8, parallel="ddp", bandwidth=1e3, **common)
    assert slow.seconds > slow.network_seconds > alone.seconds
    assert fast.network_bytes == slow.network_bytes == 8 * parameter_count(config) * 7 / 8


def test_fsdp_sends_as_much_as_ddp_in_half_precision():
    config = config_of("gpt2")
    ddp = network_bytes(config, devices=4, parallel="ddp", precision="half")
    assert network_bytes(config, devices=4, parallel="fsdp", precision="half") == ddp
    assert network_bytes(config, devices=4, parallel="fsdp", precision="float32") == 1.5 * ddp


@pytest.mark.parametrize(
    ("tokens", "epochs", "expected"),
    [
        (400_000, 4, "too little text"),
        (1_000_000, 100, "too little text"),
        (8_000_000, 1, "short training"),
        (20_000_000, 1, "balanced"),
        (200_000_000, 1, "long training"),
    ],
)
def test_tokens_are_weighed_against_a_million_parameters(tokens: int, epochs: int, expected: str):
    assert balance(parameters=1_000_000, tokens=tokens, epochs=epochs) == expected


def test_suitable_model_gets_twenty_tokens_per_parameter():
    assert suitable_parameters(tokens=400_000, epochs=4) == suitable_parameters(tokens=400_000, epochs=40) == 80_000
