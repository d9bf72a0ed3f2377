"""A model on disk: a folder that Hugging Face `transformers` loads unchanged.

`model.safetensors` holds float32 weights under the names that transformers gives them;
`config.json` holds its configuration and, under `tokenmill`, ours. No pickle is written or read.
"""

from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from tokenmill.core.errors import UserError
from tokenmill.core.files import open_regular, write_beside, write_json
from tokenmill.core.paths import damaged, way_out
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import GPT, empty_model, model_class, outline
from tokenmill.model.manifest import CONFIG, MANIFEST, WEIGHTS, read_config, read_manifest


def hf_name(model: GPT, name: str) -> str:
    """The name that transformers gives to one of our parameters."""
    for ours, theirs in model.hf_names:
        if ours.startswith("."):
            name = name.replace(ours, theirs)
        elif name.startswith(ours):
            name = theirs + name.removeprefix(ours)
    return name


def _transposed(model: GPT, name: str, tensor: Tensor) -> Tensor:
    """Transpose a matrix where transformers stores it the other way round; the inverse is the
    same."""
    is_stored_so = name.startswith("blocks.") and name.endswith(model.hf_transposed)
    return tensor.T if is_stored_so and tensor.ndim == 2 else tensor


def save_weights(model: GPT, folder: Path) -> None:
    """Write config.json and model.safetensors; the same weights are the same bytes."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if name.endswith((".lora_A", ".lora_B")):  # the weights hold their product
            continue
        tensor = parameter.detach().float().cpu()
        tensors[hf_name(model, name)] = _transposed(model, name, tensor).contiguous()
    write_json(folder / CONFIG, hf_config(model.config))
    with write_beside(folder / WEIGHTS) as path:
        safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def load_weights(model: GPT, folder: Path) -> None:
    """Copy a folder's weights into a model of the same configuration, on any device."""
    path = folder / WEIGHTS
    tensors = read_weights(path)
    _check(tensors, model, path)
    _move(tensors, model, path)


def _check(tensors: dict[str, Tensor], model: GPT, path: Path) -> None:
    """Refuse tensors, which were read from `path`, that are not the model's parameters."""
    unknown = set(tensors)
    for name, parameter in model.named_parameters():
        published = hf_name(model, name)
        if published not in tensors:
            raise UserError(
                f"{path} holds no {published}, which this {model.config.architecture} model has; "
                "it was trained as another one."
            )
        unknown.remove(published)
        tensor = _transposed(model, name, tensors[published])
        if not tensor.is_floating_point():
            raise damaged(path, f"holds {published} as {tensor.dtype}")
        if tensor.shape != parameter.shape:
            raise UserError(
                f"{path} holds {published} of shape {tuple(tensor.shape)}, the model needs "
                f"{tuple(parameter.shape)}; it was trained with other sizes."
            )
    if unknown:
        raise UserError(
            f"{path} holds {min(unknown)}, which the model has no place for; it was trained with "
            "other sizes."
        )


def _move(tensors: dict[str, Tensor], model: GPT, path: Path) -> None:
    """Copy the tensors, which were read from `path`, into the model, and release each when it is
    there. Refuse a number that is not finite: the model would write nothing."""
    for name, parameter in model.named_parameters():
        published = hf_name(model, name)
        parameter.data.copy_(_transposed(model, name, tensors.pop(published)))
        if not torch.stack(parameter.data.aminmax()).isfinite().all():
            raise UserError(
                f"{path}: {published} holds numbers that are not finite; {way_out(path)}, or take "
                "another model."
            )


def load_model(folder: Path, device: str = "cpu") -> GPT:
    """Load a saved model for evaluation, in float32.

    Configuration and weights must fit each other. If a manifest lies beside the folder, the weights
    must have the hash that it records.
    """
    config = read_config(folder)
    run = folder.parent
    path = folder / WEIGHTS
    tensors = read_weights(path)
    if (run / MANIFEST).exists():
        manifest = read_manifest(run)
        if manifest.model != config:
            raise damaged(folder / CONFIG, f"is not the model of {run / MANIFEST}")
        manifest.check_weights(folder)
    return model_of(config, tensors, path, device)


def model_of(
    config: ModelConfig, tensors: dict[str, Tensor], path: Path, device: str = "cpu"
) -> GPT:
    """A model for evaluation, in float32, with the weights that were read from `path`, of which
    `tensors` then holds none.

    Raises:
        UserError: the weights are not those of such a model, which is not built then.
    """
    if config.n_layer > len(tensors):  # an outline takes 3 ms a layer
        raise damaged(
            path,
            f"is smaller than the model of its {CONFIG}, which has {config.n_layer:,} layers",
        )
    _check(tensors, outline(config), path)
    model = empty_model(config, device=device)
    model.compute_buffers()
    _move(tensors, model, path)
    return model.eval()


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by their names in it."""
    try:
        with open_regular(path):
            return safetensors.torch.load_file(path)
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing; `dvc pull` fetches it, `dvc repro` makes it."
        ) from None
    except SafetensorError as error:
        raise damaged(path, f"is damaged ({error})") from None


def hf_config(config: ModelConfig) -> dict[str, Any]:
    """The `config.json` that transformers reads, with our own configuration under `tokenmill`."""
    shared = {
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": False,
        "tokenmill": config.model_dump(),
    }
    shared |= {"bos_token_id": None, "eos_token_id": None, "torch_dtype": "float32"}
    return shared | model_class(config.architecture).hf_config(config)
