"""Each architecture: its parameters, its weights and what its positions see."""

import pytest
import torch

from tests.model.small import ARCHITECTURES, small_config
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import GPT, build, empty_model, parameter_count

GPT2_SMALL = ModelConfig(
    architecture="gpt2",
    n_layer=12,
    n_head=12,
    n_embd=768,
    context_length=512,
    dropout=0.1,
    vocab_size=32_000,
)


def test_gpt2_small_has_134_601_216_parameters():
    assert parameter_count(GPT2_SMALL) == 134_601_216


def test_counting_allocates_nothing():
    assert all(parameter.is_meta for parameter in empty_model(GPT2_SMALL).parameters())


def test_a_new_architecture_has_the_facts_of_modern():
    new = ModelConfig.model_construct(architecture="new")
    assert new.attention_scale == 1.0
    assert new.facts == small_config("modern").facts


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_built_model_has_the_parameters_counted(architecture: str):
    config = small_config(architecture)
    assert sum(
        parameter.numel() for parameter in build(config, seed=0).parameters()
    ) == parameter_count(config)


def test_no_position_sees_a_later_one(model: GPT):
    ids_BT = torch.arange(12)[None] % 23
    embedded: list[torch.Tensor] = []

    def keep(
        _module: torch.nn.Module, _arguments: object, output_BTD: torch.Tensor
    ) -> torch.Tensor:
        embedded.append(output_BTD.detach().requires_grad_())
        return embedded[-1]

    with model.tokens.register_forward_hook(keep):
        logits_TV = model(ids_BT)[0]
    for t in range(12):
        (gradient_BTD,) = torch.autograd.grad(
            logits_TV[t].square().sum(), embedded[0], retain_graph=True
        )
        seen_T = gradient_BTD[0].abs().sum(-1) > 0
        assert seen_T.tolist() == [True] * (t + 1) + [False] * (11 - t)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_seed_alone_gives_the_weights(architecture: str):
    def weights(seed: int) -> torch.Tensor:
        torch.rand(3)  # what was drawn before must not matter
        return torch.cat(
            [p.flatten() for p in build(small_config(architecture), seed=seed).parameters()]
        )

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_building_leaves_the_random_state_unchanged():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    build(small_config("gpt2"), seed=0)
    assert torch.equal(torch.rand(2), expected)


def test_modern_logits_stay_within_the_cap():
    model = build(small_config("modern"), seed=0)
    torch.nn.init.normal_(model.head.weight, std=100.0)
    logits = model(torch.arange(12)[None])
    assert 14.9 < logits.abs().max() <= 15.0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropout_acts_in_training_only(architecture: str):
    model = build(small_config(architecture, dropout=0.5), seed=0)
    ids_BT = torch.arange(12)[None]
    torch.nn.init.normal_(model.head.weight)
    assert not torch.equal(model.train()(ids_BT), model(ids_BT))
    assert torch.equal(model.eval()(ids_BT), model(ids_BT))
