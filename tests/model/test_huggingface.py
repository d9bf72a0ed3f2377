"""A model on disk: exact, the same bytes for the same weights, and what transformers makes of
it."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.model.small import ARCHITECTURES, small_config
from tokenmill.core.errors import UserError
from tokenmill.core.files import sha256_of, write_json
from tokenmill.model import huggingface
from tokenmill.model.gpt import GPT, build
from tokenmill.model.huggingface import (
    CONFIG,
    WEIGHTS,
    load_model,
    load_weights,
    save_weights,
)
from tokenmill.model.manifest import MANIFEST, read_config
from tokenmill.runs.model_code import write_code


def test_loading_restores_the_weights_bit_by_bit(model: GPT, tmp_path: Path):
    save_weights(model, tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.config == model.config
    assert not loaded.training
    for (name, ours), (_, theirs) in zip(
        model.named_parameters(), loaded.named_parameters(), strict=True
    ):
        assert torch.equal(ours, theirs), name
    ids_BT = torch.arange(12)[None]
    assert torch.equal(model(ids_BT), loaded(ids_BT))


def test_the_same_weights_are_the_same_bytes(model: GPT, tmp_path: Path):
    save_weights(model, tmp_path / "a")
    save_weights(load_model(tmp_path / "a"), tmp_path / "b")
    assert {p.name for p in (tmp_path / "a").iterdir()} == {WEIGHTS, CONFIG}
    for name in (WEIGHTS, CONFIG):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_missing_weights_are_named(model: GPT, tmp_path: Path):
    with pytest.raises(UserError, match=r"model\.safetensors"):
        load_weights(model, tmp_path)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_weights_that_are_not_finite_are_refused_and_named(model: GPT, tmp_path: Path, value: str):
    save_weights(model, tmp_path)
    weights = load_file(tmp_path / WEIGHTS)
    weights["lm_head.weight"][3, 3] = float(value)
    save_file(weights, tmp_path / WEIGHTS)
    with pytest.raises(UserError, match=r"model\.safetensors: lm_head\.weight"):
        load_weights(model, tmp_path)
    with pytest.raises(UserError, match=r"model\.safetensors: lm_head\.weight"):
        load_model(tmp_path)


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_cut_weights_are_refused_and_named(model: GPT, tmp_path: Path, kept: int):
    save_weights(model, tmp_path)
    path = tmp_path / WEIGHTS
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"model\.safetensors is damaged"):
        load_weights(model, tmp_path)


def test_a_damaged_header_is_refused(model: GPT, tmp_path: Path):
    save_weights(model, tmp_path)
    path = tmp_path / WEIGHTS
    content = bytearray(path.read_bytes())
    content[:8] = struct.pack("<Q", 2**60)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"model\.safetensors is damaged"):
        load_weights(model, tmp_path)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"n_embd": 32}, "of shape"),
        ({"vocab_size": 24}, "of shape"),
        ({"n_layer": 3}, r"no \S+\.2\."),
        ({"n_layer": 1}, "has no place for"),
    ],
)
def test_another_models_weights_are_refused(
    architecture: str, change: dict[str, int], reason: str, tmp_path: Path
):
    save_weights(build(small_config(architecture), seed=0), tmp_path)
    with pytest.raises(UserError, match=rf"model\.safetensors .*{reason}"):
        load_weights(build(small_config(architecture, **change), seed=0), tmp_path)


@pytest.mark.parametrize("shape", [(), (-1,), (1, 16, 48)])
def test_weights_of_other_dimensions_are_refused(shape: tuple[int, ...], tmp_path: Path):
    """Without a warning of PyTorch before."""
    save_weights(build(small_config("gpt2"), seed=0), tmp_path)
    tensors = load_file(tmp_path / WEIGHTS)
    name = "transformer.h.0.attn.c_attn.weight"
    other = tensors[name].reshape(shape) if shape else torch.zeros(())
    save_file(tensors | {name: other}, tmp_path / WEIGHTS)
    with pytest.raises(UserError, match="of shape"):
        load_weights(build(small_config("gpt2"), seed=0), tmp_path)


def test_the_other_architectures_weights_are_refused(tmp_path: Path):
    save_weights(build(small_config("gpt2"), seed=0), tmp_path)
    with pytest.raises(UserError, match=r"model\.embed_tokens\.weight"):
        load_weights(build(small_config("modern"), seed=0), tmp_path)


def test_a_model_with_another_scale_of_attention_is_refused(tmp_path: Path):
    save_weights(build(small_config("speedrun"), seed=0), tmp_path)
    read_config(tmp_path)
    content = json.loads((tmp_path / CONFIG).read_text())
    del content["attention_scale"]  # as before there was one
    (tmp_path / CONFIG).write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"config\.json.*attention_scale 1\.0.* 1\.5"):
        read_config(tmp_path)


def test_a_missing_foreign_or_damaged_config_is_named(model: GPT, tmp_path: Path):
    with pytest.raises(UserError, match=r"config\.json is missing"):
        read_config(tmp_path)
    save_weights(model, tmp_path)
    content = json.loads((tmp_path / CONFIG).read_text())
    (tmp_path / CONFIG).write_text(
        json.dumps(content | {"tokenmill": content["tokenmill"] | {"n_head": 5}})
    )
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        read_config(tmp_path)
    (tmp_path / CONFIG).write_text("{}")
    with pytest.raises(UserError, match=r"config\.json .*tokenmill"):
        read_config(tmp_path)
    (tmp_path / CONFIG).write_text("{")
    with pytest.raises(UserError, match=r"config\.json is not JSON"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"n_layer": 4000},
        {"n_embd": 65_536},
        {"vocab_size": 10**7},
        {"n_embd": 65_536, "vocab_size": 8},  # as many numbers as the spare tensor has
    ],
)
def test_a_config_larger_than_the_weights_builds_no_model(
    change: dict[str, int], model: GPT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    save_weights(model, tmp_path)
    tensors = load_file(tmp_path / WEIGHTS)
    save_file(tensors | {"spare": torch.zeros(8 * 65_536, dtype=torch.int8)}, tmp_path / WEIGHTS)
    monkeypatch.setattr(huggingface, "empty_model", pytest.fail)
    content = json.loads((tmp_path / CONFIG).read_text())
    (tmp_path / CONFIG).write_text(
        json.dumps(content | {"tokenmill": content["tokenmill"] | change})
    )
    with pytest.raises(UserError, match=r"is smaller than the model|of shape"):
        load_model(tmp_path)


def test_weights_must_be_those_that_the_manifest_records(model: GPT, tmp_path: Path):
    for number, seed in ((1, 0), (2, 1)):
        save_weights(build(model.config, seed=seed), tmp_path / f"epoch-{number}")
    hashes = [sha256_of(tmp_path / f"epoch-{number}" / WEIGHTS) for number in (1, 2)]
    content: dict[str, Any] = {
        "format_version": 1,
        "fingerprint": "",
        "parameters": 1,
        "epochs": 2,
        "weights": hashes,
    }
    content |= {
        "train": {"precision": "", "batch_size": 1, "epochs": 2, "validation_bytes": None},
        "tokenizer_sha256": "",
    }
    write_json(tmp_path / MANIFEST, content | {"model": model.config.model_dump()})
    load_model(tmp_path / "epoch-2")
    for damage in (
        lambda old: old[:-1] + bytes([old[-1] ^ 1]),
        lambda _: (tmp_path / "epoch-1" / WEIGHTS).read_bytes(),
    ):
        path = tmp_path / "epoch-2" / WEIGHTS
        whole = path.read_bytes()
        path.write_bytes(damage(whole))
        with pytest.raises(UserError, match="not what training wrote"):
            load_model(tmp_path / "epoch-2")
        path.write_bytes(whole)
    write_json(
        tmp_path / MANIFEST,
        content | {"model": model.config.model_copy(update={"dropout": 0.5}).model_dump()},
    )
    with pytest.raises(UserError, match="is not the model of"):
        load_model(tmp_path / "epoch-2")


def test_transformers_computes_the_same_logits(
    model: GPT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM  # noqa: PLC0415

    save_weights(model, tmp_path)
    write_code(model.config, tmp_path)
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True, trust_remote_code=True
    )
    published, report = loaded
    assert not any(report.values()), report
    ids_BT = torch.randint(23, (3, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        theirs_BTV = published.eval()(ids_BT).logits
        ours_BTV = model(ids_BT)
    assert ours_BTV.std() > 0.5, "weights so small would prove nothing"
    torch.testing.assert_close(ours_BTV, theirs_BTV, rtol=1e-5, atol=1e-5)
    assert sum(p.numel() for p in published.parameters()) == sum(
        p.numel() for p in model.parameters()
    )
