"""Files dvc.lock in which a stage has read an earlier output than the one that lies there now."""

from pathlib import Path

from ruamel.yaml import YAML

LOCK = """\
stages:
  clean: {{outs: [{{path: data/clean, md5: text}}]}}
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
    outs: [{{path: models/finetuned, md5: tuned}}]
  finetune@full:
    deps: [{{path: models/gpt, md5: model}}]
    outs: [{{path: models/finetuned, md5: tuned otherwise}}]
  evaluate_finetuned@lora: {{deps: [{{path: models/finetuned, md5: {asked}}}]}}
"""


def write_lock(
    root: Path,
    *,
    tokenized: str = "text",
    encoded_by: str = "tokenizer",
    trained: str = "tokens",
    epochs: int = 2,
    evaluated: str = "model",
    base: str = "model",
    asked: str = "tuned",
) -> None:
    """Write a dvc.lock of which one output follows from the other, but for the hashes given, with a
    training of so many epochs."""
    values = {
        "tokenized": tokenized,
        "encoded_by": encoded_by,
        "trained": trained,
        "epochs": epochs,
        "evaluated": evaluated,
        "base": base,
        "asked": asked,
    }
    YAML().dump(YAML(typ="safe").load(LOCK.format_map(values)), root / "dvc.lock")
