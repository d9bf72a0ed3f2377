"""LoRA: the gradients and the sums of Hu et al. 2021, and an adapter that PEFT understands."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.folders import contents
from tests.model.small import ARCHITECTURES, small_config
from tokenmill.core.errors import UserError
from tokenmill.model.config import LoraParams
from tokenmill.model.gpt import GPT, copy_model, empty_model
from tokenmill.model.huggingface import load_model, save_weights
from tokenmill.model.manifest import ADAPTER, ADAPTER_CONFIG, ADAPTER_FOLDER, WEIGHTS
from tokenmill.runs.model_code import write_code
from tokenmill.training.checkpoints.store import CheckpointStore
from tokenmill.training.lora import (
    LoraLinear,
    adapt,
    load_adapter,
    merge,
    save_adapter,
    trained_parameters,
)

LORA = LoraParams(rank=3, alpha=6, targets="all")
IDS = torch.randint(0, 23, (2, 12), generator=torch.Generator().manual_seed(5))


def learned(model: GPT, lora: LoraParams = LORA) -> GPT:
    """The model with LoRA that has learned something: B is no longer zero."""
    adapt(model, lora, seed=0)
    draws = torch.Generator().manual_seed(3)
    for layer in maps(model).values():
        layer.lora_B.data.normal_(0, 0.2, generator=draws)
    merge(model)
    return model


def maps(model: GPT) -> dict[str, LoraLinear]:
    return {name: part for name, part in model.named_modules() if isinstance(part, LoraLinear)}


def loss(model: GPT) -> torch.Tensor:
    return model(IDS[:, :-1], IDS[:, 1:])


def test_the_model_starts_as_it_was(model: GPT):
    before = model(IDS)
    adapt(model, LORA, seed=0)
    torch.testing.assert_close(model(IDS), before)


@pytest.mark.parametrize("targets", ["all", ["up"], ["out", "down"]])
def test_gradients_are_those_of_the_product(model: GPT, targets: Any):
    learned(model, LORA.model_copy(update={"targets": targets}))
    whole = copy.deepcopy(model).requires_grad_(True)
    for each in (model, whole):
        loss(each).backward()
    found = maps(model)
    scale = LORA.alpha / LORA.rank
    assert found
    for name, layer in found.items():
        by_weight = whole.get_parameter(f"{name}.weight").grad
        assert isinstance(by_weight, torch.Tensor)
        torch.testing.assert_close(layer.lora_A.grad, scale * layer.lora_B.T @ by_weight)
        torch.testing.assert_close(layer.lora_B.grad, scale * by_weight @ layer.lora_A.T)


def test_nothing_else_learns(model: GPT):
    learned(model)
    loss(model).backward()
    trained = {name: each for name, each in model.named_parameters() if each.grad is not None}
    assert {name.rpartition(".")[2] for name in trained} == {"lora_A", "lora_B"}
    assert sum(each.numel() for each in trained.values()) == trained_parameters(model.config, LORA)


def test_bfloat16_learns_too(model: GPT):
    learned(model)
    with torch.autocast("cpu", torch.bfloat16):
        loss(model).backward()
    for layer in maps(model).values():
        assert isinstance(layer.lora_A.grad, torch.Tensor)
        assert layer.lora_A.grad.dtype == torch.float32
        assert layer.lora_A.grad.any()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_map_of_the_blocks_has_its_name(architecture: Any):
    config = small_config(architecture)
    block = empty_model(config).blocks[0]
    found = {
        name.rpartition(".")[2]
        for name, part in block.named_modules()
        if isinstance(part, nn.Linear)
    }
    assert found == set(config.facts.linear_maps)


@pytest.mark.parametrize("targets", ["all", ["up"], ["out"]])
def test_peft_computes_what_the_merged_model_does(model: GPT, tmp_path: Path, targets: Any):
    from peft import PeftModel  # noqa: PLC0415 (seconds)
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM  # noqa: PLC0415

    save_weights(model, tmp_path / "base")
    write_code(model.config, tmp_path / "base")
    base: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "base", trust_remote_code=True)
    learned(model, LORA.model_copy(update={"targets": targets}))
    store = CheckpointStore(tmp_path)
    epoch = store.epoch_folder(1, store.save_epoch(1, model)[WEIGHTS])
    write_code(model.config, epoch)
    merged = load_model(epoch)
    loaded: Any = AutoModelForCausalLM.from_pretrained(epoch, trust_remote_code=True)
    theirs = PeftModel.from_pretrained(base, str(epoch / ADAPTER_FOLDER)).eval()
    with torch.no_grad():
        assert torch.allclose(loaded(IDS).logits, merged(IDS), atol=1e-4, rtol=0)
        assert torch.allclose(theirs(IDS).logits, merged(IDS), atol=1e-4, rtol=0)
        with theirs.disable_adapter():
            assert not torch.allclose(theirs(IDS).logits, merged(IDS), atol=1e-2, rtol=0)
    assert json.loads((epoch / ADAPTER_FOLDER / ADAPTER_CONFIG).read_text())["r"] == LORA.rank


def test_a_copy_has_the_adapter_of_the_model(model: GPT, tmp_path: Path):
    """A GPU's checkpoint is written from a copy."""
    learned(model)
    for name, one in (("model", model), ("copy", copy_model(model, torch.clone))):
        assert one.lora == LORA
        save_adapter(one, tmp_path / name)
    assert contents(tmp_path / "copy") == contents(tmp_path / "model") != {}


def test_an_adapter_comes_back_bit_by_bit(model: GPT, tmp_path: Path):
    other = adapt(copy.deepcopy(model), LORA, seed=1)
    learned(model)
    save_adapter(model, tmp_path)
    load_adapter(other, tmp_path)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert mine.equal(theirs)


def test_an_adapter_of_another_rank_is_refused(model: GPT, tmp_path: Path):
    other = adapt(copy.deepcopy(model), LORA.model_copy(update={"rank": 2}), seed=1)
    save_adapter(learned(model), tmp_path)
    with pytest.raises(UserError, match=ADAPTER):
        load_adapter(other, tmp_path)
