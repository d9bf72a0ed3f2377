"""A model as a folder from which training can start: of this project, or GPT-2 as Hugging Face `transformers` saves it.

The folder holds config.json, model.safetensors in float32 with an untied head, and tokenizer.json.
"""

import shutil
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
from pydantic import BaseModel, ValidationError
from tokenizers import Tokenizer
from torch import Tensor

from tokenmill.core import paths
from tokenmill.core.errors import UserError, first_line
from tokenmill.core.files import write_directory, write_json, write_text
from tokenmill.core.records import read_record
from tokenmill.core.tokenizer import parse_tokenizer
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import model_class
from tokenmill.model.huggingface import hf_config, load_model, read_config, read_weights
from tokenmill.model.manifest import CONFIG, WEIGHTS
from tokenmill.runs.find import Checkpoint

WAY_OUT = "training cannot start from it; take another model"
HEAD, EMBEDDING = "lm_head.weight", "transformer.wte.weight"


class PublishedGPT2(BaseModel):
    """config.json of `GPT2LMHeadModel`, the fields that decide what the model computes, with transformers' defaults."""

    model_type: Literal["gpt2"]
    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    add_cross_attention: bool = False

    def differences(self) -> list[str]:
        """What the architecture `gpt2` computes otherwise."""
        same = {
            "n_inner": (None, 4 * self.n_embd),
            "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
            "layer_norm_epsilon": (1e-5,),
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "add_cross_attention": (False,),
        }
        return [
            f"{name} is {getattr(self, name)!r}" for name, known in same.items() if getattr(self, name) not in known
        ]


class Kind(BaseModel):
    """What tells in a config.json whose it is."""

    model_type: str = ""
    tokenmill: dict[str, Any] | None = None


def adopt(checkpoint: Checkpoint, target: Path) -> ModelConfig:
    """Write the folder `target`, whole or not at all.

    Raises:
        UserError: `target` is taken, a file is missing or damaged, or training cannot start from the model.
    """
    if target.exists():
        raise UserError(f"{target} exists; give another --name, or remove it and {target}.dvc.")
    source = checkpoint.folder
    kind = read_record(source / CONFIG, Kind, way_out=WAY_OUT)
    with write_directory(target) as folder:
        if kind.tokenmill is not None:
            load_model(source)  # compares it with the hashes beside it
            config = read_config(source)
            shutil.copyfile(source / WEIGHTS, folder / WEIGHTS)
        elif kind.model_type == "gpt2":
            config = _gpt2_config(source)
            safetensors.torch.save_file(_gpt2_weights(source), folder / WEIGHTS, metadata={"format": "pt"})
        else:
            raise UserError(f"{source / CONFIG} is of model_type {kind.model_type!r}, not gpt2; {WAY_OUT}.")
        write_json(folder / CONFIG, hf_config(config))
        write_text(folder / paths.TOKENIZER.name, _tokenizer(checkpoint.tokenizer, config))
        load_model(folder)
    return config


def _gpt2_config(source: Path) -> ModelConfig:
    published = read_record(source / CONFIG, PublishedGPT2, way_out=WAY_OUT)
    if differences := published.differences():
        raise UserError(f"{source / CONFIG}: {', '.join(differences)}, which gpt2 here does not compute; {WAY_OUT}.")
    try:
        return ModelConfig(
            architecture="gpt2",
            n_layer=published.n_layer,
            n_head=published.n_head,
            n_embd=published.n_embd,
            context_length=published.n_positions,
            dropout=0.0,
            vocab_size=published.vocab_size,
        )
    except ValidationError as error:
        raise UserError(f"{source / CONFIG} has sizes that no model has ({first_line(error)}); {WAY_OUT}.") from None


def _gpt2_weights(source: Path) -> dict[str, Tensor]:
    """The weights as `GPT2LMHeadModel` names them, in float32, the head untied from the embedding."""
    path = source / WEIGHTS
    if not path.exists():
        raise UserError(
            f"{path} is missing; let transformers write it: "
            'AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW, max_shard_size="100GB").'
        )
    known = tuple(theirs for ours, theirs in model_class("gpt2").hf_names if not ours.startswith("."))
    tensors = {
        name if name.startswith(known) else f"transformer.{name}": tensor.float().contiguous()
        for name, tensor in read_weights(path).items()
        if not name.endswith((".attn.bias", ".attn.masked_bias"))  # the causal mask of older versions
    }
    if EMBEDDING in tensors:
        tensors.setdefault(HEAD, tensors[EMBEDDING].clone())
    if broken := sorted(name for name, tensor in tensors.items() if not tensor.isfinite().all()):
        raise UserError(f"{path}: {broken[0]} holds numbers that are not finite; {WAY_OUT}.")
    return tensors


def _tokenizer(file: Path, config: ModelConfig) -> str:
    """The content of a tokenizer.json in the form of today's `tokenizers`, without truncation and padding."""
    try:
        backend = Tokenizer.from_file(str(file))
    except Exception as error:  # `tokenizers` raises bare Exception
        raise UserError(f"{file} is not a tokenizer ({first_line(error)}); {WAY_OUT}.") from None
    backend.no_truncation()
    backend.no_padding()
    content = backend.to_str(pretty=True) + "\n"
    found = parse_tokenizer(content.encode(), file, WAY_OUT)
    if found.vocab_size != config.vocab_size:
        raise UserError(
            f"the model knows {config.vocab_size:,} tokens, {file} has {found.vocab_size:,}; {WAY_OUT}, or the "
            "tokenizer that it was trained with."
        )
    return content
