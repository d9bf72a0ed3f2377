"""The calculator against what PyTorch keeps, counts and sends."""

from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.tiny import CPU, train_params
from tokenmill.model import ops
from tokenmill.model.build import build, parameter_count
from tokenmill.model.config import ModelConfig
from tokenmill.model.size import flops_per_token, memory
from tokenmill.model.validation import loss_of
from tokenmill.planning.estimate import network_bytes, optimizer_flops, step, verdict
from tokenmill.training.optimizer import Optimizer

SHAPE: dict[str, Any] = {"n_head": 4, "n_embd": 64, "context_length": 48, "dropout": 0.0, "vocab_size": 101}


def config_of(architecture: str, **changes: Any) -> ModelConfig:
    return ModelConfig.model_validate(SHAPE | {"architecture": architecture, "n_layer": 3} | changes)


def kept_bytes(config: ModelConfig, sequences: int, dtype: torch.dtype) -> int:
    """Bytes that autograd keeps between forward and backward, each storage once, parameters aside."""
    model = build(config, seed=0)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    ids_BT = torch.randint(config.vocab_size, (sequences, config.context_length))
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32),
    ):
        loss = loss_of(model, ids_BT, ids_BT)
    assert loss.requires_grad
    return sum(tensor.untyped_storage().nbytes() for at, tensor in kept.items() if at not in own)


@pytest.mark.parametrize("architecture", ["gpt2", "modern"])
@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("half", torch.bfloat16)])
@pytest.mark.parametrize("changes", [{}, {"n_layer": 1, "vocab_size": 1009}, {"n_embd": 128, "context_length": 16}])
def test_activations_are_what_pytorch_keeps(
    architecture: str,
    precision: Literal["float32", "half"],
    dtype: torch.dtype,
    changes: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
):
    """The loss keeps no logits, but the gradient of the head, which is taken at once."""
    monkeypatch.setattr(ops, "MAX_PLAIN_LENGTH", 0)  # as on a GPU
    config, sequences = config_of(architecture, **changes), 3
    need = memory(config, sequences=sequences, precision=precision, optimizer="adamw")
    copies = need.weights - 4 * parameter_count(config)
    estimated = need.activations + copies + 4 * config.vocab_size * config.n_embd
    assert estimated == pytest.approx(kept_bytes(config, sequences, dtype), rel=0.05)


@pytest.mark.parametrize("architecture", ["gpt2", "modern"])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_optimizers_state_is_as_large_as_told(architecture: str, kind: Literal["adamw", "muon"]):
    config = config_of(architecture)
    model = build(config, seed=0)
    optimizer = Optimizer(model, train_params(optimizer=kind), CPU)
    ids_BT = torch.zeros(1, 8, dtype=torch.long)
    loss = loss_of(model, ids_BT, ids_BT)
    optimizer.backward(loss)
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    optimizer.step(0.01, loss=loss.detach(), norm=optimizer.norm(), longest=1.0)
    need = memory(config, sequences=1, precision="float32", optimizer=kind)
    assert need.optimizer == sum(value.nbytes for value in optimizer.state().values() if value.ndim)
    assert need.gradients == gradients
    put_together = 12 * config.n_layer * config.n_embd**2 if architecture == "modern" else 0
    assert need.weights == sum(parameter.nbytes for parameter in model.parameters()) + put_together


@settings(max_examples=20)
@given(sequences=st.integers(1, 64), shards=st.integers(1, 64))
def test_memory_grows_with_sequences_and_shrinks_with_shards_and_recomputing(sequences: int, shards: int):
    config = config_of("gpt2", n_layer=6)

    def need(n: int, **more: Any) -> Any:
        return memory(config, sequences=n, precision="half", optimizer="muon", **more)

    assert need(2 * sequences).activations == 2 * need(sequences).activations
    assert need(sequences, recompute=True).activations < need(sequences).activations
    shared = need(sequences, shards=shards)
    assert shared.optimizer == pytest.approx(need(sequences).optimizer / shards, abs=1)
    assert shared.activations == need(sequences).activations


def test_the_original_run_on_an_a100_at_a_tenth_of_a_second_a_step():
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


def test_a_network_that_hides_costs_nothing_and_a_slow_one_does():
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


def test_sharded_weights_in_half_precision_travel_as_much_as_gradients_and_in_float32_half_more():
    config = config_of("gpt2")
    ddp = network_bytes(config, devices=4, parallel="ddp", precision="half")
    assert network_bytes(config, devices=4, parallel="fsdp", precision="half") == ddp
    assert network_bytes(config, devices=4, parallel="fsdp", precision="float32") == 1.5 * ddp


@pytest.mark.parametrize(
    ("tokens", "epochs", "expected"),
    [
        (
            400_000,
            4,
            "1.6 tokens per parameter: little text for this model; take more, or a model of about 80 thousand",
        ),
        (1_000_000, 100, "100 tokens per parameter: little text"),
        (8_000_000, 1, "8 tokens per parameter: fewer than the 20"),
        (20_000_000, 1, "20 tokens per parameter: near the 20"),
        (200_000_000, 1, "200 tokens per parameter: more than the 20"),
    ],
)
def test_tokens_per_parameter_get_a_verdict(tokens: int, epochs: int, expected: str):
    assert verdict(parameters=1_000_000, tokens=tokens, epochs=epochs).startswith(expected)
