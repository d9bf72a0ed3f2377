"""GGUF and ONNX files against the model that they were made of."""

import itertools
import json
import sys
from pathlib import Path
from typing import Any, get_args

import jinja2
import pytest
import torch

from tests.runs.test_export import NOTHING, TEXT, checkpoint_in
from tokenmill.core.errors import UserError
from tokenmill.core.files import sha256_of
from tokenmill.evaluation.generate import generate
from tokenmill.evaluation.sampling import Sampling
from tokenmill.formats.chat import TURN_END, TURN_TOKENS, chat_prompt, spelled
from tokenmill.formats.tokenizer import END_OF_TEXT, SPECIAL_TOKENS, read_tokenizer
from tokenmill.model.config import Architecture
from tokenmill.model.huggingface import load_model, save_weights
from tokenmill.model.manifest import WEIGHTS
from tokenmill.model.ops import MAX_PLAIN_LENGTH
from tokenmill.runs.export import export, is_export_of

GATE = "`pip install -e '.[gate]'` brings it"


def test_gguf_holds_model_and_tokenizer(tmp_path: Path):
    gguf = pytest.importorskip("gguf")
    checkpoint = checkpoint_in(tmp_path, "gpt2", "bpe")
    export(checkpoint, NOTHING, tmp_path / "out", "gguf")
    reader = gguf.GGUFReader(tmp_path / "out/model.gguf")
    model = load_model(checkpoint.folder)
    field = {name: value.contents() for name, value in reader.fields.items()}
    assert field["general.architecture"] == field["tokenizer.ggml.model"] == "gpt2"
    config = model.config
    shape = {
        "block_count": config.n_layer,
        "context_length": config.context_length,
        "embedding_length": config.n_embd,
        "feed_forward_length": model.get_parameter("blocks.0.down.weight").shape[1],
        "attention.head_count": config.n_head,
    }
    assert {name: field[f"gpt2.{name}"] for name in shape} == shape
    assert field["general.file_type"] == 0, "all tensors are float32"
    assert field["tokenizer.ggml.pre"] == "gpt-2"
    assert not field["tokenizer.ggml.add_bos_token"], "no training text begins so"
    for name in ("bos", "eos", "padding"):
        end = field[f"tokenizer.ggml.{name}_token_id"]
        assert field["tokenizer.ggml.tokens"][end] == END_OF_TEXT
    assert "generation %" not in field["tokenizer.chat_template"]
    asked = [
        {"role": "user", "content": "one?"},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "two"}]},
    ]
    written = jinja2.Template(field["tokenizer.chat_template"]).render(
        messages=asked, add_generation_prompt=True
    )
    assert written == spelled(chat_prompt([("user", "one?")]))
    tokens, kinds = field["tokenizer.ggml.tokens"], field["tokenizer.ggml.token_type"]
    control = {token for token, kind in zip(tokens, kinds, strict=True) if kind == 3}
    assert control == set(SPECIAL_TOKENS)
    assert tokens[field["tokenizer.ggml.eot_token_id"]] == TURN_TOKENS[TURN_END]
    assert field["gpt2.attention.layer_norm_epsilon"] == pytest.approx(
        model.get_submodule("norm").eps
    )
    assert field["general.name"] == f"{config.n_layer} layers, {config.n_embd} wide"
    merges = json.loads(checkpoint.tokenizer.read_bytes())["model"]["merges"]
    assert field["tokenizer.ggml.merges"] == [" ".join(pair) for pair in merges]
    tensors = {tensor.name: torch.tensor(tensor.data) for tensor in reader.tensors}
    assert len(tensors) == len(list(model.parameters()))
    assert torch.equal(
        tensors["blk.1.attn_qkv.weight"], model.get_parameter("blocks.1.attention.qkv.weight")
    )
    assert torch.equal(tensors["output.weight"], model.head.weight)


def test_the_card_tells_whose_weights_a_gguf_file_has(tmp_path: Path):
    pytest.importorskip("gguf")
    checkpoint = checkpoint_in(tmp_path, "gpt2", "bpe")
    export(checkpoint, NOTHING, tmp_path / "out", "gguf")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"README.md", "model.gguf"}
    assert is_export_of(checkpoint, tmp_path / "out", "gguf")
    card = tmp_path / "out/README.md"
    card.write_text(card.read_text().replace(sha256_of(checkpoint.folder / WEIGHTS), "another"))
    assert not is_export_of(checkpoint, tmp_path / "out", "gguf")


def test_llama_cpp_writes_the_same(tmp_path: Path):
    llama_cpp = pytest.importorskip(
        "llama_cpp", reason="`pip install llama-cpp-python` compiles it"
    )
    checkpoint = checkpoint_in(tmp_path, "gpt2", "bpe")
    export(checkpoint, NOTHING, tmp_path / "out", "gguf")
    ours = load_model(checkpoint.folder)
    tokenizer = read_tokenizer(checkpoint.tokenizer)
    theirs = llama_cpp.Llama(
        str(tmp_path / "out/model.gguf"), n_ctx=64, logits_all=True, verbose=False
    )
    ids = theirs.tokenize(TEXT.encode(), add_bos=False, special=False)
    assert ids == tokenizer.encode(TEXT)
    new = list(generate(ours, ids, ends={tokenizer.eot_id}, sampling=Sampling(max_new_tokens=8)))
    assert list(itertools.islice(theirs.generate(ids, temp=0.0), len(new))) == new


@pytest.mark.parametrize(
    ("architecture", "kind"), [("modern", "bpe"), ("speedrun", "bpe"), ("gpt2", "char")]
)
def test_gguf_refuses_what_llama_cpp_lacks(architecture: str, kind: Any, tmp_path: Path):
    pytest.importorskip("gguf")
    with pytest.raises(UserError, match=r"unknown to llama\.cpp"):
        export(checkpoint_in(tmp_path, architecture, kind), NOTHING, tmp_path / "out", "gguf")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("architecture", get_args(Architecture))
def test_onnx_runtime_computes_the_same(architecture: str, tmp_path: Path):
    pytest.importorskip("onnxscript", reason=GATE)
    runtime = pytest.importorskip("onnxruntime", reason=GATE)
    context = 2 * MAX_PLAIN_LENGTH  # the model has two ways to attend
    checkpoint = checkpoint_in(tmp_path, architecture, "bpe", context)
    export(checkpoint, NOTHING, tmp_path / "out", "onnx")
    ours = load_model(checkpoint.folder)
    session = runtime.InferenceSession(tmp_path / "out/model.onnx")
    for shape in [(1, 1), (2, 7), (1, context)]:
        ids_BT = torch.randint(ours.config.vocab_size, shape, generator=torch.manual_seed(0))
        (found,) = session.run(None, {"input_ids": ids_BT.numpy()})
        with torch.no_grad():
            assert torch.allclose(torch.tensor(found), ours(ids_BT), atol=1e-4, rtol=0)
    assert (tmp_path / "out/tokenizer.json").exists()


@pytest.mark.slow
def test_the_card_of_onnx_prints_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("onnxscript", reason=GATE)
    pytest.importorskip("onnxruntime", reason=GATE)
    checkpoint = checkpoint_in(tmp_path, "gpt2", "bpe", context_length=256)
    ours = load_model(checkpoint.folder)
    tokenizer = read_tokenizer(checkpoint.tokenizer)
    end = tokenizer.turn_ids[TURN_END]
    ours.head.weight.data[end] *= 8  # the end is often the likeliest, or the least likely
    save_weights(ours, checkpoint.folder)
    export(checkpoint, NOTHING, tmp_path / "out", "onnx")
    monkeypatch.chdir(tmp_path / "out")
    exec(Path("README.md").read_text().split("```")[1].removeprefix("python"), {})  # noqa: S102
    asked = tokenizer.encode_document(chat_prompt([("user", "What is the capital of France?")]))
    sampling = Sampling(max_new_tokens=256 - len(asked))
    answer = list(generate(ours, asked, ends={tokenizer.eot_id, end}, sampling=sampling))
    assert 0 < len(answer) < sampling.max_new_tokens
    assert capsys.readouterr().out == f"{tokenizer.backend.decode(answer)}\n"


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UserError, match="onnxscript"):
        export(checkpoint_in(tmp_path, "gpt2", "char"), NOTHING, tmp_path / "out", "onnx")
    assert not (tmp_path / "out").exists()
