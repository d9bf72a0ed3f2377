"""The files that describe a model, which are read without loading it: `config.json` in the folder
of an epoch, and `manifest.json` beside all epochs.

The manifest says which models a folder holds and with which parameters they were trained.
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from tokenmill.core.errors import UserError
from tokenmill.core.files import sha256_of
from tokenmill.core.params import Epochs, Section, Weight
from tokenmill.core.paths import damaged
from tokenmill.formats.records import read_record
from tokenmill.formats.token_file import Sha256
from tokenmill.model.config import LoraParams, ModelConfig

MANIFEST = "manifest.json"
# The files in the folder of one epoch
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
# The files that PEFT loads of an epoch that learned by LoRA, in a folder of their own: beside the
# weights, which hold the adapter already, transformers would find it and add it again
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER = "adapter_model.safetensors"
ADAPTER_FOLDER = "adapter"
EPOCH_ADAPTER = f"{ADAPTER_FOLDER}/{ADAPTER}"
FORMAT = 1


class TrainedWith(Section, extra="allow"):
    """The parameters of the section `train` that evaluation and reports need. All others are kept
    unchecked."""

    precision: str
    batch_size: int
    epochs: Epochs
    target_loss: float | None = None
    early_stopping: int | None = None
    validation_bytes: int | None = None
    """None also for a model from before this parameter, which still writes and can be exported."""

    @property
    def may_end_early(self) -> bool:
        """Whether training may have ended before its last epoch did."""
        return self.target_loss is not None or self.early_stopping is not None


class Tuned(Section):
    """How a trained model learned to answer."""

    lora: LoraParams | None
    """The maps that learned, and how; None if all weights did."""
    data: str
    """The name of the file or folder of chats."""
    chats: int
    """The number of chats that it learned from."""


class Manifest(Section):
    """The contents of manifest.json."""

    format_version: Literal[1]
    fingerprint: str
    """Identifies the run: runs with the same fingerprint can continue each other's checkpoints."""
    model: ModelConfig
    train: TrainedWith
    """The section `train` of params.yaml."""
    parameters: int
    """The number of trained parameters."""
    epochs: Epochs
    """The number of the last epoch; the folders are `epoch-1` to `epoch-N`."""
    weights: list[Sha256] = Field(default_factory=list)
    """The hash of the weights of each epoch; empty until training has ended."""
    tokenizer_sha256: str
    """The hash of the tokenizer.json that made the tokens."""
    start_sha256: Sha256 | None = None
    """The hash of the weights that training started from; None for random ones."""
    mixture: dict[str, Weight] | None = None
    """`data.mixture` of the training; None also for a model from before this parameter."""
    tuned: Tuned | None = Field(default=None, exclude_if=lambda tuned: tuned is None)
    """How it was fine-tuned; None if it was not, or not recorded."""

    def check_weights(self, folder: Path) -> str:
        """The SHA-256 of the weights in an epoch's folder. It must be the one that the manifest
        records."""
        recorded = {
            f"epoch-{number}": sha256 for number, sha256 in enumerate(self.weights, start=1)
        }
        found = sha256_of(folder / WEIGHTS)
        if found != recorded.get(folder.name):
            raise damaged(folder / WEIGHTS, "is not what training wrote: another hash is recorded")
        return found

    def check_tokenizer(self, sha256: str, source: str) -> None:
        """Refuse a tokenizer other than the one that the model was trained with. Error messages
        call it `source`."""
        if sha256 != self.tokenizer_sha256:
            raise UserError(
                "the model was trained with another tokenizer (sha256 "
                f"{self.tokenizer_sha256[:12]}) than {source} ({sha256[:12]}); use the one that "
                "it was trained with, or run `dvc repro`."
            )


class Saved(BaseModel):
    """The contents of config.json: what transformers reads, and our own configuration."""

    tokenmill: ModelConfig
    attention_scale: float = 1.0
    """`ArchitectureFacts.attention_scale` when it was trained."""


def read_config(folder: Path) -> ModelConfig:
    """The configuration of a saved model.

    Raises:
        UserError: it was trained when its architecture computed something else.
    """
    saved = read_record(folder / CONFIG, Saved)
    config = saved.tokenmill
    if saved.attention_scale != config.attention_scale:
        raise UserError(
            f"{folder / CONFIG}: {config.architecture} was trained with attention_scale "
            f"{saved.attention_scale}, and computes with {config.attention_scale} now; train it "
            "again, or use the version of TokenMill that trained it."
        )
    return config


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder of models."""
    manifest = read_record(folder / MANIFEST, Manifest)
    if len(manifest.weights) != manifest.epochs:
        hashes = len(manifest.weights)
        raise damaged(
            folder / MANIFEST,
            f"is damaged (epochs: {manifest.epochs}, hashes of their weights: {hashes})",
        )
    return manifest
