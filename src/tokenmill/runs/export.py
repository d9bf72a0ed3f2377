"""Export a trained model as a folder for other tools, with its tokenizer, its chat template and a
card.

`transformers` loads `hf` without this project (`AutoModelForCausalLM`, `AutoTokenizer`,
`pipeline`). Of an architecture that `transformers` lacks, the folder also holds the code. The other
formats have one file in place of its weights, and need packages that are imported only then.
`gguf`, for llama.cpp, Ollama and LM Studio, also holds tokenizer and chat template, as llama.cpp's
`convert_hf_to_gguf.py` writes them; llama.cpp can quantize such a file.
`onnx`, for onnxruntime, maps `input_ids` (batch, sequence) to `logits` (batch, sequence,
vocabulary). It has no cache of keys and values, so generation reads the whole text again for each
token.

Weights are float32, and all formats give the same greedy text. The card, README.md, says what is
known of the run (data, parameters, losses, answers).
"""

import contextlib
import json
import logging
import os
import shutil
import stat
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import read_bytes, sha256_of, write_directory, write_json, write_text
from tokenmill.display import note
from tokenmill.dvc_lock import Lock
from tokenmill.evaluation.results import Evaluation
from tokenmill.formats.chat import TURN_END, TURN_TOKENS, chat_prompt, spelled
from tokenmill.formats.metrics import CleanReport
from tokenmill.formats.records import read_record
from tokenmill.formats.tokenizer import END_OF_TEXT, TextTokenizer
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import hf_config, hf_name
from tokenmill.model.manifest import CONFIG, MANIFEST, WEIGHTS, Manifest, read_config, read_manifest
from tokenmill.reports.page import flat, render
from tokenmill.runs.chat_template import chat_template
from tokenmill.runs.find import FoundModel, Revision
from tokenmill.runs.model_code import code_names, names_of_code, write_code
from tokenmill.runs.writer import load_pair
from tokenmill.temporary import temporary_folder
from tokenmill.words.units import counted

if TYPE_CHECKING:
    from gguf import GGUFWriter

Known = TypeVar("Known")

CARD = "README.md"

Format = Literal["hf", "gguf", "onnx"]

FILES: dict[Format, str] = {"hf": WEIGHTS, "gguf": "model.gguf", "onnx": "model.onnx"}
"""The name of the file with the weights in each format."""

GENERATION_CONFIG = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
LOADED = (paths.TOKENIZER.name, CONFIG, GENERATION_CONFIG, TOKENIZER_CONFIG)
"""What stands beside the weights, but of GGUF, which holds it."""

DATA = "model.onnx.data"
"""Weights that protobuf would not hold."""

LAYER_NORM_EPS = 1e-5
"""Epsilon of `torch.nn.LayerNorm`, and of GPT-2."""

ONE_FILE = 2**30
"""Bytes of weights beyond which they go to DATA, because protobuf holds at most 2 GiB."""


@dataclass(frozen=True)
class Record:
    """What is known of the run that trained a model. None stands for what is not recorded."""

    manifest: Manifest | None
    evaluation: Evaluation | None
    clean: CleanReport | None


def record_of(checkpoint: FoundModel, root: Path) -> Record:
    """The record of a model in the project at `root`, or in its revision that has the model."""
    run = checkpoint.folder.parent
    manifest = read_manifest(run) if (run / MANIFEST).exists() else None
    if checkpoint.rev is None:
        if run.resolve() != (root / paths.MODEL).resolve():
            return Record(manifest, None, None)
        return _recorded(manifest, root, Lock.read(root))
    with (
        contextlib.closing(Revision(root, checkpoint.rev)) as revision,
        temporary_folder() as folder,
    ):
        for file in (paths.EVALUATION, paths.CLEAN_REPORT):
            with contextlib.suppress(UserError):  # it is out of reach
                revision.copy(file, folder / file)
        return _recorded(manifest, folder, revision.lock)


def _recorded(manifest: Manifest | None, folder: Path, lock: Lock) -> Record:
    """The record of the model of `lock`, by the files in a folder."""
    return Record(
        manifest,
        _own(folder, paths.EVALUATION, Evaluation, is_own=lock.is_evaluated),
        _own(folder, paths.CLEAN_REPORT, CleanReport, is_own=lock.is_of_text),
    )


def _own(folder: Path, file: Path, form: type[Known], *, is_own: bool) -> Known | None:
    """What a file says of the model; None if there is no file, or if it is of another model."""
    if not is_own:
        note(f"{file} is of another model; the card leaves it out until `dvc repro` has run")
        return None
    return read_record(folder / file, form) if (folder / file).exists() else None


def export(checkpoint: FoundModel, record: Record, target: Path, kind: Format = "hf") -> None:
    """Write the folder, whole or not at all.

    Raises:
        UserError: there is something at `target`, a stage writes there, a file of the model is
            missing or damaged, or the format has no such model or needs a package that is not
            installed.
    """
    if os.path.lexists(target):
        raise UserError(f"{target} exists; name another folder, or remove it.")
    paths.refuse_output(target)
    model, tokenizer = load_pair(checkpoint)
    config = model.config
    special = {"bos_token_id": tokenizer.eot_id, "pad_token_id": tokenizer.eot_id}
    ends = {"eos_token_id": [tokenizer.eot_id, tokenizer.turn_ids[TURN_END]]}
    with _package(kind), write_directory(target) as folder:
        write_text(folder / CARD, _card(checkpoint, record, config, tokenizer, kind))
        if kind == "gguf":  # a GGUF file holds all that follows
            _write_gguf(model, tokenizer, folder / FILES[kind])
            return
        if kind == "onnx":
            _write_onnx(model, folder / FILES[kind])
        else:
            shutil.copyfile(checkpoint.folder / WEIGHTS, folder / WEIGHTS)
            write_code(config, folder)
        shutil.copyfile(checkpoint.tokenizer, folder / paths.TOKENIZER.name)
        write_json(folder / CONFIG, hf_config(config) | special | ends)
        write_json(
            folder / GENERATION_CONFIG,
            special | ends | {"do_sample": False, "max_length": config.context_length},
        )
        write_json(folder / TOKENIZER_CONFIG, _tokenizer_config(config))


def files_of(folder: Path, kind: Format) -> list[str]:
    """The names in a folder that `export` writes for this format, whatever else is there.

    Raises:
        UserError: one of them is a link, or no file: what it leads to is none of the model's.
    """
    others = {"gguf": (), "onnx": (DATA,), "hf": names_of_code()}
    wanted = (*_required(kind), *others[kind])
    there = [name for name in wanted if os.path.lexists(folder / name)]
    for name in there:
        if not stat.S_ISREG((folder / name).lstat().st_mode):
            raise UserError(f"{folder / name} is a link or no file; remove it and export again.")
    return there


def _required(kind: Format) -> tuple[str, ...]:
    return (CARD, FILES[kind]) if kind == "gguf" else (CARD, FILES[kind], *LOADED)


def is_export_of(checkpoint: FoundModel, folder: Path, kind: Format) -> bool:
    """Whether the folder holds this model in this format. Its card may have been edited.

    Raises:
        UserError: one of its files is a link, or no file.
    """
    card = folder / CARD
    file = folder / FILES[kind]
    weights = sha256_of(checkpoint.folder / WEIGHTS)
    code = code_names(read_config(checkpoint.folder).architecture) if kind == "hf" else ()
    if not {*_required(kind), *code} <= set(files_of(folder, kind)):
        return False
    return weights in read_bytes(card).decode("utf-8", "replace") and (
        kind != "hf" or sha256_of(file) == weights
    )


@contextlib.contextmanager
def _package(extra: Format) -> Iterator[None]:
    """Within this block, turn the error about a missing package into one that names the extra of
    this project."""
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"--format {extra} needs the package {error.name}; "
            f"`pip install -c .venv/constraints.txt -e '.[{extra}]'` installs it."
        ) from None


def _tokenizer_config(config: ModelConfig) -> dict[str, Any]:
    """The configuration with which `AutoTokenizer` uses tokenizer.json unchanged.

    The chat template writes special tokens as text. So `AutoTokenizer` takes the spelling of a
    special token for the token, unless a caller says `split_special_tokens=True`.
    """
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "model_max_length": config.context_length,
        "clean_up_tokenization_spaces": False,
        "additional_special_tokens": list(TURN_TOKENS.values()),
        "chat_template": chat_template(marks_answers=True),
    }


def _card(
    checkpoint: FoundModel,
    record: Record,
    config: ModelConfig,
    tokenizer: TextTokenizer,
    kind: Format,
) -> str:
    results = record.evaluation.epochs if record.evaluation else []
    return render(
        "model_card.md",
        kind=kind,
        code=code_names(config.architecture),
        config=config,
        tokenizer=tokenizer,
        record=record,
        epoch=checkpoint.epoch,
        result=next((result for result in results if result.epoch == checkpoint.epoch), None),
        train=dict(flat(record.manifest.train.model_dump())) if record.manifest else {},
        raw=Path(record.clean.raw).name if record.clean else None,
        weights=sha256_of(checkpoint.folder / WEIGHTS),
        asked=spelled(chat_prompt([("user", "What is the capital of France?")])),
        turn_end=TURN_TOKENS[TURN_END],
        end_of_text=END_OF_TEXT,
    )


def _write_gguf(model: GPT, tokenizer: TextTokenizer, file: Path) -> None:
    """Write the GGUF file. The package `gguf` maps the names of transformers to its own.

    Raises:
        UserError: llama.cpp has no such architecture or tokenizer.
    """
    import gguf  # noqa: PLC0415

    config = model.config
    if config.architecture != "gpt2":
        raise UserError(
            f"model.architecture ({config.architecture}) is unknown to llama.cpp, so there is no "
            "GGUF of it; take --format hf or onnx, or train with gpt2."
        )
    if tokenizer.type != "bpe":
        raise UserError(
            f"tokenizer.type ({tokenizer.type}) is unknown to llama.cpp; take --format hf or onnx."
        )
    writer = gguf.GGUFWriter(file, "gpt2")
    writer.add_name(f"{counted(config.n_layer, 'layer')}, {config.n_embd} wide")
    writer.add_block_count(config.n_layer)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(4 * config.n_embd)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(LAYER_NORM_EPS)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_tokenizer(writer, tokenizer)
    writer.add_chat_template(chat_template(marks_answers=False))
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
    kinds = [
        TokenType.CONTROL if id_ in special else TokenType.NORMAL for id_ in range(len(tokens))
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in layout["model"]["merges"]])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_pad_token_id):
        add(tokenizer.eot_id)
    writer.add_eot_token_id(tokenizer.turn_ids[TURN_END])  # llama.cpp: end of turn
    writer.add_add_bos_token(False)


def _write_onnx(model: GPT, file: Path) -> None:
    """Write the ONNX file, for any number of texts of any length up to the model's context."""
    # torch.onnx imports it later, so its absence is noticed here
    import onnxscript  # noqa: F401, PLC0415  # pyright: ignore[reportMissingImports]
    from torch.export import Dim  # noqa: PLC0415

    example = torch.zeros((2, model.config.context_length), dtype=torch.int64)
    sizes = {0: Dim("batch"), 1: Dim("sequence", max=model.config.context_length)}
    # Its messages are about other packages and its own future
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
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
