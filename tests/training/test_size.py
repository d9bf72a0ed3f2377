"""Operations and memory of a model against what PyTorch counts and keeps."""

import dataclasses
import functools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from tests.model.small import ARCHITECTURES, config_of, small_config
from tests.training.tiny import CPU, train_params
from tokenmill.model import ops
from tokenmill.model.config import LoraParams, ModelConfig
from tokenmill.model.gpt import build, model_class, parameter_count
from tokenmill.training.lora import LoraLinear, adapt, trained_parameters
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.params import OPTIMIZERS, OptimizerName
from tokenmill.training.schedule import Workload
from tokenmill.training.size import (
    Memory,
    flops_per_token,
    matmul_parameters,
    memory,
    sequences_within,
)

GPT2_SMALL = ModelConfig(
    architecture="gpt2",
    n_layer=12,
    n_head=12,
    n_embd=768,
    context_length=512,
    dropout=0.0,
    vocab_size=32_000,
)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("n_layer", [1, 3])
def test_operations_are_those_that_pytorch_counts(n_layer: int, architecture: str):
    config = small_config(architecture, n_layer=n_layer)
    ids_BT = torch.zeros((2, 12), dtype=torch.long)
    model = build(config, seed=0)
    with FlopCounterMode(display=False) as counter:
        model(ids_BT).square().mean().backward()
    assert counter.get_total_flops() == flops_per_token(config) * ids_BT.numel()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("n_layer", [1, 3])
def test_operations_of_lora_are_those_that_pytorch_counts(n_layer: int, architecture: str):
    """But for those of the first block, whose input needs no gradient."""
    config = small_config(architecture, n_layer=n_layer)
    lora = LoraParams(rank=3, alpha=6, targets="all")
    ids_BT = torch.zeros((2, 12), dtype=torch.long)
    model = adapt(build(config, seed=0), lora, seed=0)
    with FlopCounterMode(display=False) as counter:
        model(ids_BT).square().mean().backward()
    counted = counter.get_flop_counts()["Global"]
    products = sum(n for operation, n in counted.items() if "bmm" not in str(operation))
    attention = 12 * n_layer * 16 * 12
    each = flops_per_token(config, learning=trained_parameters(config, lora))
    inputs_of_qkv = 2 * 3 * config.n_embd**2
    assert products == (each - attention - inputs_of_qkv) * ids_BT.numel()


def in_training(config: ModelConfig, **changes: Any) -> Workload:
    """The training of a model, on a text whose length does not matter."""
    return Workload(config, train_params(**changes), tokens=0)


def test_gpt2_small_costs_what_its_published_size_says():
    norms_and_biases = 12 * 13 * 768 + 2 * 768
    matrices = 134_601_216 - (32_000 + 512) * 768 - norms_and_biases
    assert matmul_parameters(GPT2_SMALL) == matrices
    assert flops_per_token(GPT2_SMALL) == 6 * matrices + 12 * 12 * 768 * 512


def kept_bytes(config: ModelConfig, sequences: int, dtype: torch.dtype) -> int:
    """Bytes that autograd keeps between forward and backward, each storage once, parameters
    aside."""
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
        loss = model(ids_BT, ids_BT)
    assert loss.requires_grad
    return sum(tensor.untyped_storage().nbytes() for at, tensor in kept.items() if at not in own)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("on_cpu", [False, True])
@pytest.mark.parametrize(
    "changes", [{}, {"n_layer": 1, "vocab_size": 1009}, {"n_embd": 128, "context_length": 16}]
)
def test_activations_are_what_pytorch_keeps(
    architecture: str,
    precision: torch.dtype,
    on_cpu: bool,
    changes: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
):
    """The loss keeps no logits, only the gradient of the head."""
    if not on_cpu:
        monkeypatch.setattr(ops, "MAX_PLAIN_LENGTH", 0)
    config = config_of(architecture, **changes)
    sequences = 3
    need = memory(in_training(config), sequences=sequences, precision=precision, on_cpu=on_cpu)
    copies = need.weights - 4 * parameter_count(config)
    estimated = need.activations + copies + 4 * config.vocab_size * config.n_embd
    assert estimated == pytest.approx(kept_bytes(config, sequences, precision), rel=0.05)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("power", [None, 3.0])
def test_weights_gradients_and_optimizer_state_are_counted(
    architecture: str, kind: OptimizerName, power: float | None
):
    config = config_of(architecture)
    model = build(config, seed=0)
    work = in_training(config, optimizer=kind, average_power=power)
    optimizer = Optimizer(model, work.train, CPU)
    ids_BT = torch.zeros(1, 8, dtype=torch.long)
    loss = model(ids_BT, ids_BT)
    optimizer.backward(loss)
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    optimizer.set_rates(0.01)
    optimizer.step(loss.detach())
    need = memory(work, sequences=1, precision=torch.float32)
    assert need.optimizer == sum(value.nbytes for value in optimizer.state().values() if value.ndim)
    assert need.gradients == gradients
    copies = (
        model_class(config.architecture).training_memory(config, torch.float32).weight_copy_bytes
    )
    assert need.weights == sum(parameter.nbytes for parameter in model.parameters()) + copies


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_weights_of_lora_are_counted(architecture: str):
    """Of each map the sum, the weight that it was, and what learns."""
    config = config_of(architecture)
    lora = LoraParams(rank=3, alpha=6, targets="all")
    model = adapt(build(config, seed=0), lora, seed=0)
    before = [module.before for module in model.modules() if isinstance(module, LoraLinear)]
    learning = trained_parameters(config, lora)
    work = dataclasses.replace(in_training(config), learning=learning)
    need = memory(work, sequences=1, precision=torch.float32)
    copies = (
        model_class(config.architecture).training_memory(config, torch.float32).weight_copy_bytes
    )
    held = [*model.parameters(), *before]
    assert need.weights - copies == sum(tensor.nbytes for tensor in held)


@settings(max_examples=20)
@given(sequences=st.integers(1, 64), shards=st.integers(1, 64))
def test_memory_grows_with_sequences_and_shrinks_with_shards(sequences: int, shards: int):
    work = in_training(config_of("gpt2", n_layer=6))

    def need(n: int, shards: int = 1) -> Memory:
        return memory(work, sequences=n, precision=torch.bfloat16, shards=shards)

    assert need(2 * sequences).activations == 2 * need(sequences).activations
    shared = need(sequences, shards=shards)
    assert shared.optimizer == pytest.approx(need(sequences).optimizer / shards, abs=1)
    assert shared.activations == need(sequences).activations


def test_half_a_batch_at_a_time_until_memory_holds_it():
    """512 sequences of GPT-2 medium take 477 GB; what a card holds is known before the first
    step."""
    config = GPT2_SMALL.model_copy(
        update={"n_layer": 24, "n_head": 16, "n_embd": 1024, "context_length": 1024}
    )
    work = in_training(config)
    need = functools.partial(memory, work, precision=torch.bfloat16, compiled=True)
    found = {
        gigabytes: sequences_within(512, gigabytes * 1e9, need)
        for gigabytes in (1000, 72, 36, 14, 5)
    }
    assert found == {1000: 512, 72: 64, 36: 16, 14: 4, 5: 0}
    for gigabytes, sequences in found.items():
        if 0 < sequences < 512:
            taken = [need(sequences=n).total for n in (sequences, 2 * sequences)]
            assert taken[0] <= gigabytes * 1e9 < taken[1]
    lora = dataclasses.replace(work, learning=1_000_000)
    need = functools.partial(memory, lora, precision=torch.bfloat16, compiled=True)
    assert sequences_within(512, 5e9, need) > 0, "most parameters have neither gradient nor moments"
