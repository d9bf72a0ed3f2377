"""`tokenmill import`: write a model from which training can start to models/start, under DVC.

The model is one of this project, or GPT-2 as Hugging Face `transformers` saves it. The folder holds
config.json, model.safetensors in float32 with an untied head, and tokenizer.json. If the vocabulary
lacks the special tokens of turns, they are added after its other entries, with a row each in the
embedding and the head. These rows are the mean of the others (Hewitt 2021), so that the model
starts without unusual values. What it computes for the other entries stays the same.
"""

import argparse
import filecmp
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokenmill.cli.main import Parser, file_name, refuse_outside
from tokenmill.core import paths
from tokenmill.core.errors import UserError, first_line
from tokenmill.core.files import read_bytes, write_directory, write_text
from tokenmill.display import passed_on, say

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    from tokenmill.model.config import ModelConfig
    from tokenmill.runs.find import FoundModel

WAY_OUT = "training cannot start from it; take another model"
HEAD = "lm_head.weight"
EMBEDDING = "transformer.wte.weight"

EXAMPLES = """\
  tokenmill import /path/to/gpt2                    GPT-2 as transformers saves it
  tokenmill import --epoch 2                        an epoch of this project's model
  tokenmill import --rev wroth-code --name before   the model of an experiment
  tokenmill import FOLDER --tokenizer FILE          a model whose tokenizer is elsewhere

Each becomes a folder of models/start: gpt2, epoch-2, before and the last one's own name.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the model, and its name in models/start."""
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="FOLDER", help="config.json, model.safetensors"
    )
    parser.add_argument(
        "--name",
        type=file_name,
        help="of the folder in models/start (default: that of the model)",
    )
    parser.add_argument("--epoch", type=int, metavar="N", help="this epoch of the project's model")
    parser.add_argument(
        "--rev", metavar="REV", help="of another git revision or DVC experiment, or a ref epoch-N"
    )
    parser.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="for FOLDER, if it is not there"
    )


def run(options: argparse.Namespace) -> None:
    """Check the model, write its folder, let DVC track it, and say what to type next."""
    from tokenmill.runs.find import find_model

    refuse_outside()
    if options.folder and not options.folder.exists():
        raise UserError(
            f"{options.folder} is not here; `hf download OWNER/NAME --revision REV --local-dir "
            "FOLDER` brings a model of Hugging Face, `dvc get` one of another project."
        )
    found = find_model(
        Path(),
        epoch=options.epoch,
        rev=options.rev,
        model=options.folder,
        tokenizer=options.tokenizer,
    )
    last = (options.folder or Path(found.name)).resolve().name
    name = options.name or re.sub(r"[^\w.-]+", "-", last).strip("-.")
    if not name:
        raise UserError(f"{found.name} ends in no name; give one by --name NAME.")
    target = paths.STARTS / name
    config = adopt(found, target)
    if passed_on([sys.executable, "-P", "-m", "dvc", "add", "--quiet", str(target)]):
        raise UserError(f"{target} is written, but DVC does not track it; its message is above.")
    values = {"start_from": target.as_posix()} | config.model_dump(
        exclude={"vocab_size", "dropout"}
    )
    say(f"{found.name}: {target}")
    say(f"to keep it:        git add {paths.STARTS} && git commit, and `dvc push`")
    settings = [f"-S model.{key}={shlex.quote(str(value))}" for key, value in values.items()]
    say(f"to train from it:  dvc exp run {' '.join(settings)}")


@dataclass(frozen=True)
class PublishedGPT2:
    """The fields in config.json of `GPT2LMHeadModel` that decide what the model computes, with the
    defaults of transformers."""

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
        """The fields in which the model differs from what the architecture `gpt2` computes."""
        same = {
            "n_inner": (None, 4 * self.n_embd),
            "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
            "layer_norm_epsilon": (1e-5,),
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "add_cross_attention": (False,),
        }
        return [
            f"{name} is {getattr(self, name)!r}"
            for name, known in same.items()
            if getattr(self, name) not in known
        ]


def adopt(checkpoint: "FoundModel", target: Path) -> "ModelConfig":
    """Write the folder `target`, whole or not at all. What an import that was killed left there is
    replaced.

    Raises:
        UserError: `target` is taken, a file is missing or damaged, or training cannot start from
            the model.
    """
    from tokenmill.formats.records import read_record
    from tokenmill.formats.tokenizer import parse_tokenizer
    from tokenmill.model.huggingface import load_model, model_of, save_weights
    from tokenmill.model.manifest import CONFIG, WEIGHTS

    if os.path.lexists(record := f"{target}.dvc"):  # which DVC writes last
        raise UserError(f"{record} exists; give another --name, or remove {target} and it.")
    source = checkpoint.folder
    described = read_record(source / CONFIG, dict[str, Any], way_out=WAY_OUT)
    backend, way_out = _read_backend(checkpoint.tokenizer), WAY_OUT
    with write_directory(target) as folder:
        if described.get("tokenmill") is not None:
            model = load_model(source)  # compares it with the hashes beside it
            _check_size(backend, checkpoint.tokenizer, model.config)
            way_out = f"{WAY_OUT}, or train it again with `dvc repro`"
        elif described.get("model_type") == "gpt2":
            published = _gpt2_config(source / CONFIG)
            config = _with_turns(backend, checkpoint.tokenizer, published)
            added = config.vocab_size - published.vocab_size
            weights = _with_rows(_gpt2_weights(source / WEIGHTS), added)
            model = model_of(config, weights, source / WEIGHTS)
        else:
            raise UserError(
                f"{source / CONFIG} is of model_type {described.get('model_type')!r}, not gpt2; "
                f"{WAY_OUT}."
            )
        save_weights(model, folder)
        content = backend.to_str(pretty=True) + "\n"
        parse_tokenizer(content.encode(), checkpoint.tokenizer, way_out)
        write_text(folder / paths.TOKENIZER.name, content)
        if os.path.lexists(target) and not _is_part(target, folder):
            raise UserError(f"{target} exists; give another --name, or remove it.")
    return model.config


def _is_part(target: Path, folder: Path) -> bool:
    """Whether `target` holds nothing but files of `folder`, as after an import that was killed."""
    if not target.is_dir():
        return False
    names = [path.name for path in target.iterdir()]
    same, *_ = filecmp.cmpfiles(target, folder, names, shallow=False)
    return len(same) == len(names)


def _gpt2_config(path: Path) -> "ModelConfig":
    from pydantic import ValidationError

    from tokenmill.formats.records import read_record
    from tokenmill.model.config import ModelConfig

    published = read_record(path, PublishedGPT2, way_out=WAY_OUT)
    if differences := published.differences():
        raise UserError(
            f"{path}: {', '.join(differences)}, which gpt2 here does not compute; {WAY_OUT}."
        )
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
        raise UserError(
            f"{path} has sizes that no model has ({first_line(error)}); {WAY_OUT}."
        ) from None


def _gpt2_weights(path: Path) -> dict[str, "Tensor"]:
    """The weights under the names of `GPT2LMHeadModel`, with a head of its own instead of the
    embedding's weights."""
    from tokenmill.model.gpt import model_class
    from tokenmill.model.huggingface import read_weights

    if not path.exists():
        raise UserError(
            f"{path} is missing; let transformers write it: "
            "AutoModelForCausalLM.from_pretrained(FOLDER)"
            '.save_pretrained(NEW, max_shard_size="100GB").'
        )
    known = tuple(
        theirs for ours, theirs in model_class("gpt2").hf_names if not ours.startswith(".")
    )
    mask = (".attn.bias", ".attn.masked_bias")  # the causal one, of older versions
    tensors = {
        name if name.startswith(known) else f"transformer.{name}": tensor
        for name, tensor in read_weights(path).items()
        if not name.endswith(mask)
    }
    if EMBEDDING in tensors:
        tensors.setdefault(HEAD, tensors[EMBEDDING].clone())
    return tensors


def _with_turns(backend: "Tokenizer", file: Path, config: "ModelConfig") -> "ModelConfig":
    """Add the special tokens of turns to the tokenizer of `file`, and return the model's
    configuration with room for them."""
    from tokenmill.formats.chat import TURN_TOKENS
    from tokenmill.formats.tokenizer import add_special_tokens

    _check_size(backend, file, config)
    add_special_tokens(backend, TURN_TOKENS.values())
    return config.model_copy(update={"vocab_size": backend.get_vocab_size()})


def _with_rows(tensors: dict[str, "Tensor"], added: int) -> dict[str, "Tensor"]:
    """The weights with `added` more rows of embedding and head, each the mean of the other rows."""
    import torch

    for name in (EMBEDDING, HEAD):
        rows = tensors.get(name)
        # `model_of` refuses others
        if added and rows is not None and rows.is_floating_point() and rows.dim() == 2:
            mean = rows.float().mean(0, keepdim=True)
            tensors[name] = torch.cat([rows.float(), mean.expand(added, -1)])
    return tensors


def _read_backend(file: Path) -> "Tokenizer":
    """A tokenizer.json as `tokenizers` writes it today, without truncation, padding and what adds
    special tokens to a text: here only the pipeline does."""
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_buffer(read_bytes(file))
    except (OSError, UserError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # `tokenizers` raises bare Exception, and a panic is none
        raise UserError(f"{file} is not a tokenizer ({first_line(error)}); {WAY_OUT}.") from None
    backend.no_truncation()
    backend.no_padding()
    if backend.num_special_tokens_to_add(is_pair=False):
        backend.post_processor = None
    return backend


def _check_size(backend: "Tokenizer", file: Path, config: "ModelConfig") -> None:
    found = backend.get_vocab_size()
    if found != config.vocab_size:
        raise UserError(
            f"the model knows {config.vocab_size:,} tokens, {file} has {found:,}; {WAY_OUT}, or "
            "the tokenizer that it was trained with."
        )
    # Writing it takes time and memory for each number up to the largest id
    if sorted(backend.get_vocab().values()) != list(range(found)):
        raise UserError(f"{file} has gaps in its ids; {WAY_OUT}.")
