"""A model as one file for other programs: GGUF for llama.cpp, Ollama and LM Studio, ONNX for onnxruntime.

GGUF takes a `gpt2` model with its tokenizer and chat template, as llama.cpp's `convert_hf_to_gguf.py` writes it; the
package `gguf` maps the names of transformers to it. Matrices and embeddings are float32; llama.cpp quantizes such a
file. ONNX maps `input_ids` (batch, sequence) to `logits` (batch, sequence, vocabulary), in float32. It has no cache of
keys and values, so writing with it reads the whole text for each token.

Each format has packages of its own, imported only when it is asked for.
"""

import contextlib
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tokenmill.core.errors import UserError
from tokenmill.core.tokenizer import TextTokenizer
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import hf_name

if TYPE_CHECKING:
    from gguf import GGUFWriter

LAYER_NORM_EPS = 1e-5
"""Of `torch.nn.LayerNorm`, and of GPT-2."""

ONE_FILE = 2**30
"""Bytes of weights beyond which they are in `model.onnx.data`: protobuf holds 2 GiB."""


def write_gguf(model: GPT, tokenizer: TextTokenizer, file: Path, *, chat_template: str) -> None:
    """Write the file.

    Raises:
        ImportError: the package `gguf` is not installed.
        UserError: llama.cpp has no such architecture or tokenizer.
    """
    import gguf  # noqa: PLC0415

    config = model.config
    if config.architecture != "gpt2":
        raise UserError(
            f"model.architecture ({config.architecture}) is unknown to llama.cpp, so there is no GGUF of it; "
            "take --format hf or onnx, or train with gpt2."
        )
    if tokenizer.type != "bpe":
        raise UserError(f"tokenizer.type ({tokenizer.type}) is unknown to llama.cpp; take --format hf or onnx.")
    writer = gguf.GGUFWriter(file, "gpt2")
    writer.add_name(f"{config.n_layer} layers, {config.n_embd} wide")
    writer.add_block_count(config.n_layer)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(4 * config.n_embd)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(LAYER_NORM_EPS)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_tokenizer(writer, tokenizer)
    writer.add_chat_template(chat_template)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, config.n_layer)
    for ours, parameter in model.named_parameters():  # as (out, in), unlike transformers
        name = names.get_name(hf_name(model, ours), try_suffixes=(".weight", ".bias"))
        assert name is not None, ours
        writer.add_tensor(name, parameter.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: "GGUFWriter", tokenizer: TextTokenizer) -> None:
    from gguf import TokenType  # noqa: PLC0415

    layout: dict[str, Any] = json.loads(tokenizer.backend.to_str())
    vocabulary = tokenizer.backend.get_vocab(with_added_tokens=True)
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    special = tokenizer.backend.get_added_tokens_decoder()
    kinds = [TokenType.CONTROL if id_ in special else TokenType.NORMAL for id_ in range(len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in layout["model"]["merges"]])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_pad_token_id):
        add(tokenizer.eot_id)
    writer.add_add_bos_token(False)


def write_onnx(model: GPT, file: Path) -> None:
    """Write the file: texts of any number and, up to the model's context, of any length.

    Raises:
        ImportError: a package of the exporter is not installed.
    """
    import onnxscript  # noqa: F401, PLC0415  # pyright: ignore[reportMissingImports] (torch.onnx needs it later)
    from torch.export import Dim  # noqa: PLC0415 (seconds)

    example = torch.zeros((2, model.config.context_length), dtype=torch.int64)
    sizes = {0: Dim("batch"), 1: Dim("sequence", max=model.config.context_length)}
    with _quiet():
        torch.onnx.export(
            model,
            (example,),
            file,
            dynamo=True,
            input_names=["input_ids"],
            output_names=["logits"],
            dynamic_shapes=(sizes,),
            external_data=4 * sum(parameter.numel() for parameter in model.parameters()) > ONE_FILE,
            verbose=False,
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what the exporter says of other packages and of its own future."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
