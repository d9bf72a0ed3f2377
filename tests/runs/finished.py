"""A git and DVC project with models that were never trained: two commits, an experiment, refs of
epochs."""

import shutil
from pathlib import Path

from tests.evaluation.trained import make_tokenizer_file
from tests.pipeline.project import Project
from tests.training.tiny import model_config, train_params
from tokenmill.core.files import sha256_of, write_json, write_text
from tokenmill.core.paths import MODEL, TOKENIZER
from tokenmill.formats.records import write_rows
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import build
from tokenmill.model.huggingface import save_weights
from tokenmill.model.manifest import FORMAT, MANIFEST, WEIGHTS, Manifest, TrainedWith
from tokenmill.training.history import EpochRow, train_metrics

EXPERIMENT = "blest-jube"
PIPELINE = """\
stages:
  tokenizer:
    cmd: "false"
    outs: [data/tokenizer]
  train:
    cmd: "false"
    outs: [models/gpt]
"""


def write_models(root: Path, *, seed: int, epochs: int) -> None:
    """Write what training leaves: weights that differ by seed and epoch, manifest, metrics, a
    resume point."""
    tokenizer = read_tokenizer(root / "data/tokenizer/tokenizer.json")
    shutil.rmtree(root / "models/gpt", ignore_errors=True)
    config = model_config(vocab_size=tokenizer.vocab_size, context_length=32)
    rows = []
    for epoch in range(1, epochs + 1):
        model = build(config, seed=10 * seed + epoch)
        save_weights(model, root / f"models/gpt/epoch-{epoch}")
        loss = 5.0 - seed / 10 - epoch
        rows.append(EpochRow(epoch, epoch, 100 * epoch, 0.1, loss, loss, 1.0, 1.0))
    write_manifest(root, config, epochs=epochs)
    write_text(root / "models/gpt/resume/step-1/optimizer.bin", f"much of {seed}")
    write_rows(root / "metrics/history.csv", EpochRow, rows)
    write_json(root / "metrics/train.json", train_metrics(rows[-1], parameters=1))


def write_manifest(root: Path, config: ModelConfig, *, epochs: int) -> None:
    """What training writes beside the weights of its epochs, by them and the tokenizer."""
    manifest = Manifest(
        format_version=FORMAT,
        fingerprint="0" * 16,
        model=config,
        train=TrainedWith.model_validate(train_params(epochs=epochs).model_dump()),
        parameters=1,
        epochs=epochs,
        weights=[sha256_of(root / MODEL / f"epoch-{n}" / WEIGHTS) for n in range(1, epochs + 1)],
        tokenizer_sha256=read_tokenizer(root / TOKENIZER).sha256,
    )
    write_json(root / MODEL / MANIFEST, manifest.model_dump())


def make_project(root: Path, top: Path | None = None) -> Project:
    """`HEAD~1` has two epochs, `HEAD` three (and is checked out), the experiment one; a remote lies
    beside. The git repository is the folder, or `top` above it."""
    project = Project.new(root, remote=True, top=top)
    (root / "data/tokenizer").mkdir(parents=True)
    shutil.copy(
        make_tokenizer_file(root.parent / "made", "bpe"), root / "data/tokenizer/tokenizer.json"
    )
    write_text(root / "dvc.yaml", PIPELINE)
    write_text(root / ".gitignore", "/data/tokenizer\n/models\n")
    for seed, epochs in ((1, 2), (2, 3)):
        write_models(root, seed=seed, epochs=epochs)
        project.run("dvc", "commit", "-f", "-q")
        project.commit()
    write_models(root, seed=3, epochs=1)
    project.run("dvc", "commit", "-f", "-q")
    project.run("dvc", "exp", "save", "-n", EXPERIMENT)
    project.run("git", "checkout", "-q", ".")
    project.run("dvc", "checkout", "-q", "-f")
    return project
