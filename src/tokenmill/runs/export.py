"""A trained model as a folder for other tools, with its tokenizer, its chat template and a card.

`hf` is what `transformers` loads without code of ours (`AutoModelForCausalLM`, `AutoTokenizer`, `pipeline`); `gguf` and
`onnx` are one file each in place of its weights. All write the same greedy text. What is known of the run (data,
parameters, losses, answers) is on the card, README.md.
"""

import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tokenmill.core import paths
from tokenmill.core.chat import NAMES
from tokenmill.core.errors import UserError
from tokenmill.core.files import sha256_of, write_directory, write_json, write_text
from tokenmill.core.metrics import CleanReport, read_clean_report
from tokenmill.core.tokenizer import END_OF_TEXT, TextTokenizer, read_tokenizer
from tokenmill.evaluation.results import Evaluation, read_evaluation
from tokenmill.model.config import ModelConfig
from tokenmill.model.huggingface import hf_config, load_model
from tokenmill.model.manifest import CONFIG, MANIFEST, WEIGHTS, Manifest, read_manifest
from tokenmill.reports.page import flat, render
from tokenmill.runs.export_formats import write_gguf, write_onnx
from tokenmill.runs.find import Checkpoint, Revision
from tokenmill.runs.writer import check_tokenizer

CHAT_TEMPLATE = (
    "{%- set names = "
    + json.dumps(NAMES)
    + " -%}{%- for message in messages if message['content'] | trim -%}{{- ('' if loop.first else '\n') "
    "+ names.get(message['role'] | lower, message['role'] | capitalize) + ': ' + message['content'] | trim -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '\nAssistant:' -}}{%- endif -%}"
)
"""What `core.chat.render` does, in Jinja2."""

CARD = "README.md"

Format = Literal["hf", "gguf", "onnx"]

FILES: dict[Format, str] = {"hf": WEIGHTS, "gguf": "model.gguf", "onnx": "model.onnx"}
"""Which file has the weights."""


@dataclass(frozen=True)
class Record:
    """What is known of the run that trained a model; None where nothing is recorded."""

    manifest: Manifest | None
    evaluation: Evaluation | None
    clean: CleanReport | None


def record_of(checkpoint: Checkpoint, root: Path, rev: str | None) -> Record:
    """What the project at `root`, or its revision `rev`, records of a model."""
    run = checkpoint.folder.parent
    manifest = read_manifest(run) if (run / MANIFEST).exists() else None
    if rev is None and run.resolve() != (root / paths.MODEL).resolve():
        return Record(manifest, None, None)
    with _files(root, rev) as folder:
        evaluation, clean = folder / paths.EVALUATION, folder / paths.CLEAN_REPORT
        return Record(
            manifest,
            read_evaluation(evaluation) if evaluation.exists() else None,
            read_clean_report(clean) if clean.exists() else None,
        )


@contextlib.contextmanager
def _files(root: Path, rev: str | None) -> Iterator[Path]:
    """A folder with the files of a revision that are within reach."""
    if rev is None:
        yield root
        return
    with contextlib.closing(Revision(root, rev)) as revision, tempfile.TemporaryDirectory() as name:
        for file in (paths.EVALUATION, paths.CLEAN_REPORT):
            with contextlib.suppress(UserError):
                if revision.has(file):
                    revision.copy(file, Path(name) / file)
        yield Path(name)


def export(checkpoint: Checkpoint, record: Record, target: Path, kind: Format = "hf") -> None:
    """Write the folder, whole or not at all.

    Raises:
        UserError: there is something at `target`, a file of the model is missing or damaged, or the format has no such
            model or needs a package that is not installed.
    """
    if target.exists():
        raise UserError(f"{target} exists; name another folder, or remove it.")
    tokenizer, model = read_tokenizer(checkpoint.tokenizer), load_model(checkpoint.folder)
    check_tokenizer(checkpoint, model, tokenizer)
    config = model.config
    ends = {"bos_token_id": tokenizer.eot_id, "eos_token_id": tokenizer.eot_id, "pad_token_id": tokenizer.eot_id}
    with write_directory(target) as folder:
        write_text(folder / CARD, _card(checkpoint, record, config, tokenizer, kind))
        if kind == "gguf":  # it holds all that follows
            with _package(kind):
                write_gguf(model, tokenizer, folder / FILES[kind], chat_template=CHAT_TEMPLATE)
            return
        if kind == "onnx":
            with _package(kind):
                write_onnx(model, folder / FILES[kind])
        else:
            shutil.copyfile(checkpoint.folder / WEIGHTS, folder / WEIGHTS)
        shutil.copyfile(checkpoint.tokenizer, folder / paths.TOKENIZER.name)
        write_json(folder / CONFIG, hf_config(config) | ends)
        write_json(folder / "generation_config.json", ends | {"do_sample": False, "max_length": config.context_length})
        write_json(folder / "tokenizer_config.json", _tokenizer_config(config))


@contextlib.contextmanager
def _package(extra: Format) -> Iterator[None]:
    """Name the extra of this project that a format needs."""
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"--format {extra} needs the package {error.name}; `pip install -c constraints.txt -e '.[{extra}]'` "
            "installs it."
        ) from None


def _tokenizer_config(config: ModelConfig) -> dict[str, Any]:
    """How `AutoTokenizer` uses tokenizer.json: as it is, and with text as text, as in training."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "model_max_length": config.context_length,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
        "chat_template": CHAT_TEMPLATE,
    }


def _card(checkpoint: Checkpoint, record: Record, config: ModelConfig, tokenizer: TextTokenizer, kind: Format) -> str:
    epoch = re.fullmatch(r"epoch-(\d+)", checkpoint.folder.name)
    results = {result.epoch: result for result in record.evaluation.epochs} if record.evaluation else {}
    return render(
        "model_card.md",
        kind=kind,
        config=config,
        tokenizer=tokenizer,
        record=record,
        epoch=int(epoch[1]) if epoch else None,
        result=results.get(int(epoch[1])) if epoch else None,
        train=dict(flat(record.manifest.train.model_dump())) if record.manifest else {},
        raw=Path(record.clean.params["data"]["raw"]).name if record.clean else None,
        weights=sha256_of(checkpoint.folder / WEIGHTS),
    )
