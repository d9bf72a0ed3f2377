"""A project to publish: the report of a run, and models of two epochs that were never trained."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from stages import report as stage
from tests.evaluation.trained import make_tokenizer_file
from tests.model.small import small_config, with_noise
from tests.reports.data_material import DOCUMENTS, HOSTILE
from tests.reports.run_material import prepare
from tokenmill.core.files import sha256_of, write_json
from tokenmill.evaluation.sampling import Sampling
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.model.gpt import GPT, build
from tokenmill.model.huggingface import save_weights
from tokenmill.model.manifest import WEIGHTS, read_manifest
from tokenmill.runs.find import find_model
from tokenmill.runs.writer import Writer

SAMPLING = Sampling(max_new_tokens=24, temperature=0.8, top_k=40)
GREEDY = Sampling(max_new_tokens=24)
QUESTION = "What is the capital of France?"
TEXT = "The river, it's "
"""A text to continue: the second epoch of `modern` ends it with a space."""
CONTEXT = 64


def make_project(root: Path, architecture: str = "modern") -> Path:
    """The report of the stage `report`, of a run with hostile prompts and answers; the answers to
    the first question and to the text are those of the models."""
    prepare(root, epochs=2)
    make_tokenizer_file(root / "data/tokenizer", "bpe", DOCUMENTS)
    write_models(root, architecture)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CEILING_DIRECTORIES", str(root.parent))
        patch.chdir(root)
        stage.main()
    evaluation = json.loads((root / "reports/evaluation.json").read_text(encoding="utf-8"))
    evaluation["questions"][3] |= {"kind": "text", "prompt": TEXT}
    for epoch in (1, 2):
        answers = evaluation["epochs"][epoch - 1]["answers"]
        answers[0]["greedy"] = greedy(root, QUESTION, epoch) if epoch == 1 else HOSTILE
        answers[3]["greedy"] = greedy(root, TEXT, epoch, chat=False).strip()
    write_json(root / "reports/evaluation.json", evaluation)
    return root


def write_models(root: Path, architecture: str) -> None:
    tokenizer = read_tokenizer(root / "data/tokenizer/tokenizer.json")
    config = small_config(
        architecture,
        n_embd=32,
        context_length=CONTEXT,
        vocab_size=tokenizer.vocab_size,
    )
    manifest = read_manifest(root / "models/gpt").model_dump()
    shutil.rmtree(root / "models/gpt")
    for epoch in (1, 2):
        save_weights(
            noisy(build(config, seed=epoch), seed=epoch), root / f"models/gpt/epoch-{epoch}"
        )
    manifest |= {
        "model": config.model_dump(),
        "tokenizer_sha256": tokenizer.sha256,
        "weights": [sha256_of(root / f"models/gpt/epoch-{n}" / WEIGHTS) for n in (1, 2)],
    }
    write_json(root / "models/gpt/manifest.json", manifest)


def noisy(model: GPT, seed: int) -> GPT:
    """No weight is zero, the model prefers some tokens clearly, and float16 holds its weights."""
    with torch.no_grad():
        for parameter in with_noise(model, seed=seed, scale=0.4).parameters():
            parameter.copy_(parameter.half().float())
    return model


def greedy(root: Path, prompt: str, epoch: int, *, chat: bool = True) -> str:
    """What the library writes."""
    writer = Writer.load(find_model(root, epoch=epoch), "cpu")
    return "".join(writer.stream(prompt, GREEDY, chat=chat))
