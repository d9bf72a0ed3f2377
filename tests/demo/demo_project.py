"""A project with small models to demonstrate: two epochs of this run, an experiment with three, and
further folders."""

import shutil
from pathlib import Path

import torch

from tests.evaluation.trained import make_tokenizer_file
from tests.imports import ROOT
from tests.model.small import small_config
from tests.pipeline.project import Project, change_params
from tests.runs.finished import PIPELINE, write_manifest
from tests.tokens.clean_text import write_clean
from tests.tokens.packing import index_here
from tokenmill.core.files import write_json, write_text
from tokenmill.core.paths import MODEL, TOKENIZER, TOKENS, TRAIN_METRICS
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import build
from tokenmill.model.gpt2 import GPT2
from tokenmill.model.huggingface import WEIGHTS, save_weights
from tokenmill.tokens.params import TokenizeParams

RECITED = (
    "<b>no</b>{{1+1}}${1+1}<img src=x onerror=alert(1)>\n🦊 \u05e9\u05dc\u05d5\u05dd\u202e \0 end"
    " \u0645\u06cc\u200c\u062e\u0648 👩\u200d👧 a\u200cb م\u200c\u200cی\u200c"
)
"""What one model writes: markup, templates, an emoji, Hebrew, an override of the direction, a
NUL, joiners."""
KNOWN = "".join(chr(code) for code in range(32, 127)) + "äöüß🦊\n" + RECITED
# The prompts of the evaluation
QUESTION = "What is the capital of France?"
CONTINUED = "ROMEO:"
EXPERIMENT = "blest-jube"
CONTEXT = 128


def make_project(root: Path) -> Path:
    """params.yaml, a tokenizer of characters, a run of two epochs; beside it `reciter`, `other`
    with another tokenizer, and `damaged`."""
    root.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "params.yaml", root)
    change_params(
        root / "params.yaml", {"evaluate.prompts": [{"user": QUESTION}, {"text": CONTINUED}]}
    )
    make_tokenizer_file(root / TOKENIZER.parent, "char", [KNOWN])
    shutil.rmtree(root / TOKENIZER.parent / "clean")
    write_run(root, epochs=2, seed=1)
    write_reciter(root, root.parent / "reciter")
    write_other(root.parent / "other")
    write_damaged(root, root.parent / "damaged")
    return root


def write_run(root: Path, *, epochs: int, seed: int) -> None:
    """Models of a run that never happened; each writes nonsense of its own."""
    shutil.rmtree(root / MODEL, ignore_errors=True)
    config = config_for(root, "modern")
    for epoch in range(1, epochs + 1):
        model = build(config, seed=seed + epoch)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.add_(
                    torch.randn(
                        parameter.shape, generator=torch.Generator().manual_seed(len(name))
                    ),
                    alpha=0.3,
                )
        folder = root / MODEL / f"epoch-{epoch}"
        folder.mkdir(parents=True)
        save_weights(model, folder)
    write_manifest(root, config, epochs=epochs)
    measured = {"epoch": epochs, "steps": 1, "tokens": 1, "parameters": 1, "val_loss": 1.0 + seed}
    write_json(root / TRAIN_METRICS, measured)


def config_for(root: Path, architecture: str, **changes: int) -> ModelConfig:
    sizes = {
        "n_layer": 2,
        "n_head": 2,
        "n_embd": 32,
        "context_length": CONTEXT,
        "dropout": 0.0,
    } | changes
    vocabulary = read_tokenizer(root / TOKENIZER).vocab_size
    return ModelConfig.model_validate(
        {"architecture": architecture, "vocab_size": vocabulary} | sizes
    )


def write_other(folder: Path) -> None:
    """A model with another tokenizer."""
    tokenizer = read_tokenizer(make_tokenizer_file(folder, "bpe"))
    config = small_config("modern", n_embd=32, vocab_size=tokenizer.vocab_size, context_length=64)
    save_weights(build(config, seed=9), folder)


def write_reciter(root: Path, folder: Path) -> None:
    """A model that writes RECITED after an empty prompt, for every position has its character, then
    the end."""
    tokenizer = read_tokenizer(root / TOKENIZER)
    ids = [*tokenizer.encode(RECITED), tokenizer.eot_id][:CONTEXT]
    model = build(config_for(root, "gpt2", n_embd=CONTEXT, n_layer=1), seed=0)
    assert isinstance(model, GPT2)
    with torch.no_grad():
        for parameter in (*model.blocks.parameters(), model.tokens.weight, model.head.weight):
            parameter.zero_()
        model.positions.weight.copy_(torch.eye(CONTEXT))
        for position, token in enumerate(ids):
            model.head.weight[token, position] = 10.0
    folder.mkdir(parents=True)
    save_weights(model, folder)
    shutil.copy(root / TOKENIZER, folder)


def write_damaged(root: Path, folder: Path) -> None:
    """A model whose weights were cut off in the middle."""
    write_reciter(root, folder)
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[: len(content) // 2])


def index_training_text(root: Path) -> None:
    """The index of a training text of two documents."""
    texts = ["Paris is the capital of France.", "<img src=x onerror=alert(1)>", "held out"]
    sources = ["a.txt", "b.txt", "validation.txt"]
    clean = write_clean(root / "clean", texts, sources=sources)
    split = TokenizeParams(split="auto", val_fraction=0.1)
    index_here(root / TOKENS.parent, clean, root / TOKENIZER, split)


def keep_with_dvc(root: Path) -> None:
    """Make it a git and DVC repository, and save another run of three epochs as an experiment."""
    project = Project.new(root)
    write_text(root / "dvc.yaml", PIPELINE)
    write_text(root / ".gitignore", "/data/tokenizer\n/models\n")
    project.run("dvc", "commit", "-f", "-q")
    project.commit()
    write_run(root, epochs=3, seed=11)
    project.run("dvc", "commit", "-f", "-q")
    project.run("dvc", "exp", "save", "-n", EXPERIMENT)
    project.run("git", "reset", "-q", "--hard")
    project.run("dvc", "checkout", "-q", "--force")
