"""A model on disk: a folder that Hugging Face `transformers` loads as it stands.

`model.safetensors` holds float32 weights under the names of `GPT2LMHeadModel` or `NanoChatForCausalLM`;
`config.json` holds their configuration and, under `tokenmill`, ours. No pickle is written or read.
"""

from pathlib import Path
from typing import Any

import safetensors.torch
from pydantic import ValidationError
from safetensors import SafetensorError
from torch import Tensor

from tokenmill.core.errors import UserError
from tokenmill.core.files import read_json, write_beside, write_json
from tokenmill.model.build import GPT, skeleton
from tokenmill.model.config import ModelConfig
from tokenmill.model.modern import LOGIT_CAP, ROPE_BASE, Modern
from tokenmill.model.ops import NORM_EPS

WEIGHTS, CONFIG = "model.safetensors", "config.json"


_NAMES = {
    "gpt2": [
        ("tokens.", "transformer.wte."),
        ("positions.", "transformer.wpe."),
        ("norm.", "transformer.ln_f."),
        ("head.", "lm_head."),
        ("blocks.", "transformer.h."),
        (".norm_1.", ".ln_1."),
        (".norm_2.", ".ln_2."),
        (".attention.qkv.", ".attn.c_attn."),
        (".attention.out.", ".attn.c_proj."),
        (".up.", ".mlp.c_fc."),
        (".down.", ".mlp.c_proj."),
    ],
    "modern": [
        ("tokens.", "model.embed_tokens."),
        ("head.", "lm_head."),
        ("blocks.", "model.layers."),
        (".attention.out.", ".self_attn.o_proj."),
        (".attention.q.", ".self_attn.q_proj."),
        (".attention.k.", ".self_attn.k_proj."),
        (".attention.v.", ".self_attn.v_proj."),
        (".up.", ".mlp.fc1."),
        (".down.", ".mlp.fc2."),
    ],
}
"""Ours, theirs; a pair that starts with a dot replaces inside a name, the others at its start."""


def published_name(architecture: str, name: str) -> str:
    """The name that transformers gives to one of our parameters."""
    for ours, theirs in _NAMES[architecture]:
        if ours.startswith("."):
            name = name.replace(ours, theirs)
        elif name.startswith(ours):
            name = theirs + name.removeprefix(ours)
    return name


def _is_transposed(architecture: str, name: str) -> bool:
    """GPT-2's published matrices are (in, out), those of `torch.nn.Linear` (out, in)."""
    return (
        architecture == "gpt2"
        and name.startswith("blocks.")
        and name.endswith(("qkv.weight", "out.weight", "up.weight", "down.weight"))
    )


def save_weights(model: GPT, folder: Path) -> None:
    """Write `config.json` and `model.safetensors` into `folder`; the same weights are the same bytes."""
    architecture = model.config.architecture
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        tensor = parameter.detach().float().cpu()
        tensor = tensor.T if _is_transposed(architecture, name) else tensor
        tensors[published_name(architecture, name)] = tensor.contiguous()
    write_json(folder / CONFIG, published_config(model.config))
    with write_beside(folder / WEIGHTS) as path:
        safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def load_weights(model: GPT, folder: Path) -> None:
    """Copy a folder's weights into a model of the same configuration, wherever it lives.

    Raises:
        UserError: a file is missing or damaged, or the shapes are another model's.
    """
    path = folder / WEIGHTS
    try:
        tensors = safetensors.torch.load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; `dvc pull` fetches it, `dvc repro` makes it.") from None
    except SafetensorError as error:
        raise UserError(f"{path} is damaged ({error}); `dvc checkout --force` or `dvc pull` restores it.") from None
    architecture = model.config.architecture
    for name, parameter in model.named_parameters():
        published = published_name(architecture, name)
        tensor = tensors.pop(published, None)
        if tensor is None:
            raise UserError(
                f"{path} holds no {published}: it is not the {architecture} model that params.yaml describes."
            )
        tensor = tensor.T if _is_transposed(architecture, name) else tensor
        if tensor.shape != parameter.shape:
            raise UserError(
                f"{path} holds {published} of shape {tuple(tensor.shape)}, the model needs {tuple(parameter.shape)}; "
                "it was trained with other sizes."
            )
        parameter.data.copy_(tensor)
    if tensors:
        raise UserError(
            f"{path} holds {min(tensors)}, which the model has no place for; it was trained with other sizes."
        )


def read_config(folder: Path) -> ModelConfig:
    """The configuration that a model's folder was saved with."""
    content = read_json(folder / CONFIG)
    if "tokenmill" not in content:
        raise UserError(f"{folder / CONFIG} was not written by TokenMill: it has no key `tokenmill`.")
    try:
        return ModelConfig.model_validate(content["tokenmill"])
    except ValidationError as error:
        raise UserError(
            f"{folder / CONFIG} is damaged ({error.error_count()} values under `tokenmill` are wrong); "
            "`dvc checkout --force` or `dvc pull` restores it."
        ) from None


def load_model(folder: Path, device: str = "cpu") -> GPT:
    """A saved model, ready to evaluate, in float32."""
    model = skeleton(read_config(folder), device=device)
    if isinstance(model, Modern):
        model.set_angles()
    load_weights(model, folder)
    return model.eval()


def published_config(config: ModelConfig) -> dict[str, Any]:
    """The `config.json` that transformers reads, with our own configuration under `tokenmill`."""
    shared = {"vocab_size": config.vocab_size, "tie_word_embeddings": False, "tokenmill": config.model_dump()}
    shared |= {"bos_token_id": None, "eos_token_id": None, "torch_dtype": "float32"}
    if config.architecture == "gpt2":
        return shared | {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "activation_function": "gelu_new",
            "attn_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "resid_pdrop": config.dropout,
            "n_positions": config.context_length,
            "n_embd": config.n_embd,
            "n_layer": config.n_layer,
            "n_head": config.n_head,
        }
    return shared | {
        "architectures": ["NanoChatForCausalLM"],
        "model_type": "nanochat",
        "hidden_act": "relu2",
        "hidden_size": config.n_embd,
        "intermediate_size": 4 * config.n_embd,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_head,
        "max_position_embeddings": config.context_length,
        "final_logit_softcapping": LOGIT_CAP,
        "rms_norm_eps": NORM_EPS,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_BASE},
        "attention_bias": False,
    }
