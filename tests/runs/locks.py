"""Files dvc.lock in which a stage has read an earlier output than the one that lies there now."""

import hashlib
from pathlib import Path

from ruamel.yaml import YAML

from tokenmill.core.files import write_json

FINETUNED = {
    "train": {
        "epoch": 3,
        "steps": 9,
        "tokens": 9,
        "parameters": 5,
        "val_loss": 2.865,
        "train_answer_bytes_per_token": 1.2,
    },
    "eval": {"base_text_loss": 4.522, "base_text_loss_before": 3.831},
}
"""The metrics of a model that `lora` made, by the names of their files."""

LOCK = """\
stages:
  clean:
    deps: [{{path: {raw}, md5: raw}}]
    outs: [{{path: data/clean, md5: text}}]
  tokenizer: {{outs: [{{path: data/tokenizer, md5: tokenizer}}]}}
  tokenize:
    deps: [{{path: data/clean, md5: {tokenized}}}, {{path: data/tokenizer, md5: {encoded_by}}}]
    outs: [{{path: data/packed, md5: packed}}]
  unpack:
    deps: [{{path: data/packed, md5: packed}}]
    outs: [{{path: data/tokens, md5: tokens}}]
  train:
    deps: [{{path: data/tokens, md5: {trained}}}]
    params: {{params.yaml: {{data.mixture: {{}}, train: {{epochs: {epochs}, target_loss: null}}}}}}
    outs: [{{path: models/gpt, md5: model}}]
  evaluate: {{deps: [{{path: models/gpt, md5: {evaluated}}}]}}
  finetune@lora:
    deps: [{{path: models/gpt, md5: {base}}}]
    outs: [{{path: models/finetuned, md5: tuned}}, {{path: {train}, md5: {train_md5}}}]
  finetune@full:
    deps: [{{path: models/gpt, md5: model}}]
    outs: [{{path: models/finetuned, md5: tuned otherwise}}]
  evaluate_finetuned@lora:
    deps: [{{path: models/finetuned, md5: {asked}}}]
    outs: [{{path: {eval}, md5: {eval_md5}}}]
"""


def write_lock(
    root: Path,
    *,
    raw: str = "texts",
    tokenized: str = "text",
    encoded_by: str = "tokenizer",
    trained: str = "tokens",
    epochs: int = 2,
    evaluated: str = "model",
    base: str = "model",
    asked: str = "tuned",
) -> None:
    """Write a dvc.lock of which one output follows from the other, but for the hashes given, of the
    text at `raw`, with a training of so many epochs, and the metrics FINETUNED."""
    values = {
        "raw": raw,
        "tokenized": tokenized,
        "encoded_by": encoded_by,
        "trained": trained,
        "epochs": epochs,
        "evaluated": evaluated,
        "base": base,
        "asked": asked,
    }
    for name, content in FINETUNED.items():
        path = f"metrics/finetuned/{name}.json"
        write_json(root / path, content)
        md5 = hashlib.md5((root / path).read_bytes(), usedforsecurity=False).hexdigest()
        values |= {name: path, f"{name}_md5": md5}
    YAML().dump(YAML(typ="safe").load(LOCK.format_map(values)), root / "dvc.lock")
