"""`tokenmill import`: GPT-2 as transformers saves it, and models of this project, as folders to
start from."""

import importlib
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.evaluation.trained import make_tokenizer_file
from tests.runs.test_export import NOTHING, TEXT, checkpoint_in
from tokenmill.cli.main import main
from tokenmill.core.errors import UserError
from tokenmill.formats.chat import render_chat
from tokenmill.formats.tokenizer import END_OF_TEXT, add_special_tokens, read_tokenizer
from tokenmill.model.config import Architecture
from tokenmill.model.huggingface import load_model
from tokenmill.runs.export import export
from tokenmill.runs.find import FoundModel

SEQUENCE = [{"Sequence": {"id": "A", "type_id": 0}}]

adopt = importlib.import_module("tokenmill.cli.import").adopt  # `import` is a keyword


def published(folder: Path, vocab_size: int | None = None) -> tuple[FoundModel, Any]:
    """GPT-2 with tied weights as transformers saves it, with a tokenizer of its own."""
    # This takes seconds
    from transformers.models.gpt2.configuration_gpt2 import GPT2Config  # noqa: PLC0415
    from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel  # noqa: PLC0415
    from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast  # noqa: PLC0415

    file = make_tokenizer_file(folder / "tokenizer", "bpe")
    vocab_size = vocab_size or read_tokenizer(file).vocab_size
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=vocab_size, n_positions=64, n_embd=32, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(config).eval()
    model.save_pretrained(folder / "gpt2")
    PreTrainedTokenizerFast(tokenizer_file=str(file), eos_token=END_OF_TEXT).save_pretrained(
        folder / "gpt2"
    )
    return FoundModel("gpt2", folder / "gpt2", folder / "gpt2/tokenizer.json"), model


def test_published_gpt2_computes_the_same(tmp_path: Path):
    checkpoint, theirs = published(tmp_path)
    adopt(checkpoint, tmp_path / "start")
    ours = load_model(tmp_path / "start")
    tokenizer = read_tokenizer(tmp_path / "start/tokenizer.json")
    assert tokenizer.encode(TEXT) == read_tokenizer(tmp_path / "tokenizer/tokenizer.json").encode(
        TEXT
    )
    ids_BT = torch.tensor([tokenizer.encode(TEXT)])
    with torch.no_grad():
        assert torch.allclose(theirs(ids_BT).logits, ours(ids_BT), atol=1e-5, rtol=0)
    assert torch.equal(ours.head.weight, ours.tokens.weight)
    assert ours.head.weight.data_ptr() != ours.tokens.weight.data_ptr()


def without_turns(checkpoint: FoundModel) -> None:
    """A tokenizer of bytes and end-of-text, as GPT-2 has them."""
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), END_OF_TEXT]
    vocabulary = {token: number for number, token in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    add_special_tokens(tokenizer, [END_OF_TEXT])
    checkpoint.tokenizer.write_text(tokenizer.to_str())


def test_gpt2_gets_the_special_tokens_of_turns(tmp_path: Path):
    checkpoint, theirs = published(tmp_path, vocab_size=257)
    without_turns(checkpoint)
    config = adopt(checkpoint, tmp_path / "start")
    ours = load_model(tmp_path / "start")
    tokenizer = read_tokenizer(tmp_path / "start/tokenizer.json")
    assert (config.vocab_size, tokenizer.vocab_size, tokenizer.eot_id) == (262, 262, 256)
    assert sorted(tokenizer.turn_ids.values()) == [257, 258, 259, 260, 261]
    ids = tokenizer.encode(TEXT)
    with torch.no_grad():
        found = ours(torch.tensor([ids]))
        assert torch.allclose(
            theirs(torch.tensor([ids])).logits, found[..., :257], atol=1e-5, rtol=0
        )
    for weights in (ours.tokens.weight, ours.head.weight):
        mean = weights[:257].mean(0)
        assert torch.allclose(weights[257:], mean.expand(5, -1), atol=1e-7)
    chat = render_chat([("user", "Hi"), ("assistant", "Ho")])
    assert tokenizer.encode_document(chat)[0] == 257
    again = FoundModel("again", tmp_path / "start", tmp_path / "start/tokenizer.json")
    adopt(again, tmp_path / "twice")
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "twice" / file).read_bytes() == (tmp_path / "start" / file).read_bytes()


def test_model_of_before_turns_is_refused(tmp_path: Path):
    checkpoint = checkpoint_in(tmp_path, "gpt2", "bpe")
    layout = json.loads(checkpoint.tokenizer.read_bytes())
    layout["added_tokens"] = layout["added_tokens"][:1]
    checkpoint.tokenizer.write_text(json.dumps(layout))
    with pytest.raises(
        UserError, match=r"no special token <\|user_start\|>; training cannot .*dvc repro"
    ):
        adopt(checkpoint, tmp_path / "start")


def test_a_tokenizer_with_gaps_in_its_ids_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The library writes one in time and memory of its largest id, here seconds and 160 MB."""
    checkpoint, _ = published(tmp_path)
    layout = json.loads(checkpoint.tokenizer.read_bytes())
    vocabulary = layout["model"]["vocab"]
    vocabulary["a"] = 40_000_000
    checkpoint.tokenizer.write_text(json.dumps(layout))
    monkeypatch.setattr("tokenmill.model.huggingface.save_weights", None)
    with pytest.raises(UserError, match="gaps in its ids"):
        adopt(checkpoint, tmp_path / "start")


def test_base_model_in_half_precision_is_read(tmp_path: Path):
    """The hub's `gpt2` has names without `transformer.`; others are in half precision."""
    checkpoint, theirs = published(tmp_path)
    theirs.transformer.half().save_pretrained(checkpoint.folder)
    adopt(checkpoint, tmp_path / "start")
    found = load_model(tmp_path / "start").get_parameter("blocks.1.up.bias")
    assert torch.equal(found, theirs.transformer.h[1].mlp.c_fc.bias.float())


@pytest.mark.parametrize(
    "change",
    [
        {"activation_function": "relu"},
        {"scale_attn_by_inverse_layer_idx": True},
        {"n_inner": 64},
        {"layer_norm_epsilon": 1e-6},
        {"model_type": "llama", "tokenmill": None},
        {"n_layer": 10**9},
        {"vocab_size": 281},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_architecture_is_refused(change: dict[str, Any], tmp_path: Path):
    checkpoint, _ = published(tmp_path)
    config = checkpoint.folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_bytes()) | change))
    with pytest.raises(UserError):
        adopt(checkpoint, tmp_path / "start")
    assert not (tmp_path / "start").exists()


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", {"type": "Lowercase"}),
        ("pre_tokenizer", {"type": "Whitespace"}),
        ("added_tokens", []),
    ],
)
def test_other_tokenizer_is_refused(part: str, value: Any, tmp_path: Path):
    checkpoint, _ = published(tmp_path)
    layout = json.loads(checkpoint.tokenizer.read_bytes()) | {part: value}
    checkpoint.tokenizer.write_text(json.dumps(layout))
    with pytest.raises(UserError, match="take another model"):
        adopt(checkpoint, tmp_path / "start")


def test_truncation_and_what_is_put_in_front_do_not_count(tmp_path: Path):
    checkpoint, _ = published(tmp_path)
    bos = {"id": END_OF_TEXT, "ids": [0], "tokens": [END_OF_TEXT]}
    single = [{"SpecialToken": {"id": END_OF_TEXT, "type_id": 0}}, *SEQUENCE]
    template = {"type": "TemplateProcessing", "single": single, "pair": [*SEQUENCE, *SEQUENCE]}
    layout = json.loads(checkpoint.tokenizer.read_bytes())
    layout["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    layout["post_processor"] = template | {"special_tokens": {END_OF_TEXT: bos}}
    del layout["pre_tokenizer"]["use_regex"]  # as in the hub's `gpt2`
    checkpoint.tokenizer.write_text(json.dumps(layout))
    adopt(checkpoint, tmp_path / "start")
    file = tmp_path / "start/tokenizer.json"
    ids = read_tokenizer(file).encode(TEXT)
    assert len(ids) > 4
    assert Tokenizer.from_file(str(file)).encode(TEXT).ids == ids


@pytest.mark.parametrize("architecture", get_args(Architecture))
def test_model_of_this_project_is_taken(architecture: str, tmp_path: Path):
    checkpoint = checkpoint_in(tmp_path, architecture, "char")
    export(checkpoint, NOTHING, tmp_path / "out")
    for number, folder in enumerate([checkpoint.folder, tmp_path / "out"]):
        adopt(FoundModel("x", folder, checkpoint.tokenizer), tmp_path / f"start{number}")
        assert (tmp_path / f"start{number}/model.safetensors").read_bytes() == (
            checkpoint.folder / "model.safetensors"
        ).read_bytes()


def test_weights_that_are_not_finite_are_refused(tmp_path: Path):
    checkpoint, theirs = published(tmp_path)
    theirs.transformer.wpe.weight.data[3, 3] = float("nan")
    theirs.save_pretrained(checkpoint.folder)
    with pytest.raises(UserError, match=r"wpe\.weight"):
        adopt(checkpoint, tmp_path / "start")


@pytest.mark.parametrize(
    ("dtype", "message"),
    [(torch.bfloat16, None), (torch.int32, "int32"), (torch.cfloat, "complex")],
)
def test_weights_become_float32_or_are_refused(
    dtype: torch.dtype, message: str | None, tmp_path: Path
):
    checkpoint = checkpoint_in(tmp_path, "gpt2", "bpe")
    export(checkpoint, NOTHING, tmp_path / "out")
    file = tmp_path / "out/model.safetensors"
    save_file({name: weight.to(dtype) for name, weight in load_file(file).items()}, file)
    found = FoundModel("x", tmp_path / "out", checkpoint.tokenizer)
    if message:
        with pytest.raises(UserError, match=message):
            adopt(found, tmp_path / "start")
        return
    adopt(found, tmp_path / "start")
    taken = load_file(tmp_path / "start/model.safetensors")
    assert {weight.dtype for weight in taken.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("dtype", "message"),
    [(torch.bfloat16, None), (torch.float8_e4m3fn, None), (torch.int8, "int8")],
)
def test_rows_of_turns_are_means_in_float32(
    dtype: torch.dtype, message: str | None, tmp_path: Path
):
    checkpoint, _ = published(tmp_path, vocab_size=257)
    without_turns(checkpoint)
    file = checkpoint.folder / "model.safetensors"
    save_file({name: weight.to(dtype) for name, weight in load_file(file).items()}, file)
    if message:
        with pytest.raises(UserError, match=message):
            adopt(checkpoint, tmp_path / "start")
        return
    adopt(checkpoint, tmp_path / "start")
    head = load_file(tmp_path / "start/model.safetensors")["lm_head.weight"]
    assert torch.equal(head[257:], head[:257].mean(0, keepdim=True).expand(5, -1))


def test_a_tensor_too_many_or_too_few_is_named_where_it_is(tmp_path: Path):
    checkpoint, _ = published(tmp_path)
    file = checkpoint.folder / "model.safetensors"
    weights = load_file(file)
    save_file(weights | {"v_head.weight": torch.zeros(2, 32)}, file)
    with pytest.raises(UserError, match=rf"{re.escape(str(file))} holds transformer\.v_head"):
        adopt(checkpoint, tmp_path / "start")
    del weights["transformer.ln_f.bias"]
    save_file(weights, file)
    with pytest.raises(
        UserError, match=rf"{re.escape(str(file))} holds no transformer\.ln_f\.bias"
    ):
        adopt(checkpoint, tmp_path / "start")


@pytest.mark.parametrize(
    ("left", "is_taken"),
    [
        ({"config.json"}, False),  # as while DVC links the files from its cache
        ({"config.json", "model.safetensors", "tokenizer.json"}, False),
        ({"config.json", "notes.txt"}, True),
    ],
)
def test_only_what_a_killed_import_left_is_replaced(left: set[str], is_taken: bool, tmp_path: Path):
    checkpoint = checkpoint_in(tmp_path, "gpt2", "bpe")
    start = tmp_path / "start"
    adopt(checkpoint, start)
    whole = {path.name: path.read_bytes() for path in start.iterdir()}
    for name in whole.keys() - left:
        (start / name).unlink()
    for name in left - whole.keys():
        (start / name).write_text("mine")
    if is_taken:
        with pytest.raises(UserError, match=r"--name"):
            adopt(checkpoint, start)
        assert {path.name for path in start.iterdir()} == left
        return
    adopt(checkpoint, start)
    assert {path.name: path.read_bytes() for path in start.iterdir()} == whole


def test_a_name_that_dvc_knows_is_taken(tmp_path: Path):
    checkpoint = checkpoint_in(tmp_path, "gpt2", "bpe")
    (tmp_path / "start.dvc").touch()
    with pytest.raises(UserError, match=r"start\.dvc"):
        adopt(checkpoint, tmp_path / "start")
    assert not (tmp_path / "start").exists()


@pytest.mark.parametrize("name", ["openai-community/gpt2", "hf://openai-community/gpt2"])
def test_a_name_on_the_hub_is_told_how_to_come_here(name: str, here: Path):
    Path(".dvc").mkdir()
    with pytest.raises(SystemExit, match="hf download"):
        main(["import", name])
